package report

// The systems that are measured, as tables and charts name them.
const (
	Leasehold  = "leasehold"
	Pushed     = "leasehold, push"
	Followed   = "leasehold, leaderhttp"
	PushedNew  = "leasehold, push, first of a process"
	Together   = "leasehold, one process"
	Clocked    = "leasehold, server clock"
	SafePlain  = "safe plain loop"
	Plain      = "plain loop"
	Litestream = "Litestream's leaser"
	ClientGo   = "client-go on S3"
	Election   = "etcd Election"
	Mutex      = "etcd Mutex"
	Redislock  = "redislock"
	Advisory   = "PostgreSQL advisory lock"

	Tabled       = "leasehold table"
	TabledPushed = "leasehold table, push"
	Meanwhile    = "leasehold table, push, wanted again meanwhile"
)

// The servers of the peers that do not lock in a bucket.
const (
	OnEtcd     = "etcd"
	OnRedis    = "Redis"
	OnPostgres = "PostgreSQL"
)

// Server is what a peer needs for its locks; "" if it is a bucket.
func Server(peer string) string {
	switch peer {
	case Election, Mutex:
		return OnEtcd
	case Redislock:
		return OnRedis
	case Advisory:
		return OnPostgres
	}
	return ""
}

// Virtual is the place of what was measured in virtual time.
const Virtual = "virtual time"

// The sections that can be measured by themselves.
const (
	AloneElectors  = "electors"
	AloneTakeovers = "takeover"
	AloneHandovers = "handover"
	AloneCounts    = "counts"
	AloneCommand   = "command"
	AloneTables    = "tables"
)

// What happens to all locks of one process.
const (
	AtOnce    = "acquired at once"
	AllKilled = "the process is killed"
	AllEnded  = "the process ends"
)

// The cases of a takeover.
const (
	Crash      = "crash"
	ThreeHeirs = "crash, three candidates"
	Newcomer   = "crash, the candidate starts after it"
	Failing    = "crash, 1 % of requests fail"
	Outage     = "crash, then 503s for TTL/3"
)

// The ways of a hand-over.
const (
	Release     = "release"
	Resignation = "resignation"
	Stop        = "stop of the process"
)

// What ends processes of the command, and what shortens the time without a leader then.
const (
	Restart = "three replicas of `elect` are restarted in turn"
	Killed  = "kill -9 of `run`"
	ByPolls = "polls"
	Listens = "`--listen`"
	Kept    = "`--on-crash keep`"
	Freed   = "the guard's release"
)

// The stores of many electors.
const (
	OnMemStore = "MemStore"
	OnSDK      = "S3Store, SDK, server in the process"
)

// The states of an elector whose memory is measured.
const (
	Leads     = "leads"
	Waits     = "waits"
	HasWaited = "has waited and leads"
)

// Those of a request of a table.
const (
	Holds    = "a lease that is held"
	WaitsFor = "a request that waits, with the goroutine of its caller"
)

// The cases of leading for a long time.
const (
	EnduresFailing = "1 % of requests fail"
	EnduresOutages = "503s for 5 s, every one to two minutes"
)
