package main

import (
	"fmt"
	"strings"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
)

// topics are the help texts that belong to no command, and sections of the man page.
var topics = []struct{ name, short, text string }{
	{"urls", "How a URL names a lock", `A lock is one object, and its URL names it:

  s3://BUCKET/KEY         Amazon S3, and servers with its API
  gs://BUCKET/KEY         Google Cloud Storage
  azblob://CONTAINER/KEY  Azure Blob Storage
  file:///DIRECTORY/NAME  a directory, for the processes of one machine

Parameters of s3:

  endpoint=URL   a server other than Amazon's, such as http://localhost:9000
  region=NAME    of the bucket (default us-east-1 if there is an endpoint)
  path-style=1   the bucket is in the path and not in the host name; this is
                 the default if there is an endpoint, and 0 turns it off
  profile=NAME   of the AWS configuration
  createonly=1   the server can only create objects: see
                 https://github.com/leasehold-go/leasehold/blob/main/docs/stores.md
  sse=ALGORITHM  encryption that each write names, because a policy of the
                 bucket demands it: AES256, aws:kms or aws:kms:dsse
  sse-kms-key-id=KEY
                 ID, ARN or alias of the key; may be left out

Without parameters, the environment and the files of the AWS SDK decide: AWS_REGION, AWS_PROFILE,
AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and others, ~/.aws/config, the role of the machine.

With sse, each write of every command names the encryption. Handles and listed URLs keep the
parameters. The default encryption of a bucket needs neither. A key of the customer (SSE-C) does not
work: each read would need the key, and it is a secret.

The parameter of gs is endpoint=URL. The credentials are Google's application default credentials.

Parameters of azblob:

  account=NAME  of the storage account
  endpoint=URL  of the account, if it is not https://NAME.blob.core.windows.net;
                of Azurite http://127.0.0.1:10000/devstoreaccount1

The credentials are the same as for az storage: AZURE_STORAGE_CONNECTION_STRING, where
UseDevelopmentStorage=true is Azurite; or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or
AZURE_STORAGE_SAS_TOKEN; or else Microsoft Entra's: a managed identity, az login, the variables of
azidentity.

Never put credentials into a URL.

Write special characters of a key as %XX: a question mark as %3F, a # as %23, a percent sign as %25.
Quote a URL with a ? or & for the shell. "list -o json" prints the URL of each lock, which names that
lock and no other. An object that cannot be a lock has no URL.

In a file URL, the last slash ends the directory, and %2F is a slash of the key:
file:///var/lib/locks/jobs%2Fnightly is the lock "jobs/nightly" of a Go program in the directory
/var/lib/locks, and "leasehold list file:///var/lib/locks/jobs%2F" lists the locks below "jobs/".

All holders of one lock must name the same object.`},
	{"guarantee", "What is dead before another holder can have the lock",
		`"run" and "elect" renew the lease three times in its TTL. If the lease is lost, the command and
all that it has started are dead before another holder can have the lock. This is so if the store
cannot be reached, and even if leasehold itself is stopped (SIGSTOP) or killed (SIGKILL).

  TTL - margin    SIGTERM to the command's process group, and to what left it
  TTL - margin/2  SIGKILL
  TTL             others may take the lock

The times count from before the last renewal was sent. The TTL is 30 s, or --ttl, and the margin is
a third of it, or --margin. The library's defaults are 15 s and a fifth. A process takes longer to
end than a goroutine: it gets SIGTERM, and SIGKILL half a margin later.

A small guard process starts the command and keeps these times. It needs nothing from leasehold but
the end of the lease, which both have in shared memory. Its clock counts the sleep of the machine
(CLOCK_BOOTTIME on Linux). If leasehold is killed, the guard kills the command at once. If the guard
is killed, leasehold kills the command and exits with 70; on Linux the system kills the command with
the guard. leasehold reports a guard that is stopped.

The command has a separate process group. On Linux, the guard also finds in /proc what has left the
group, such as a daemon. If the guard was killed, leasehold finds these processes by the process
group, the control group, and the variable LEASEHOLD_GUARD in their environment. It does not end
processes that neither it nor the command has started, such as a sidecar of the same script.

On Linux, the command also has a separate control group (cgroup2), if leasehold may make one below
the control group in which it runs, whose limits count as before. The system kills all processes in
it in one step, even those that leasehold may not kill. A program that starts processes in new
sessions, faster than the guard can look, is dead in time only in a control group. "run -v" reports the
path of the control group, or why there is none:

  root, on Linux 5.14 or later with cgroup2              control group,
                                                         even with cgroup1
  a user, in a unit of systemctl --user                  control group
  a user, in a unit with Delegate=yes and User=          control group
  a user, in a session of SSH or a console               none
  a container where /sys/fs/cgroup is read-only          none
  a control group of type threaded                       none
  a control group at its cgroup.max.descendants          none

The control group is removed at the end. If leasehold and the guard are both killed, its directory
stays until it is removed with rmdir.

When the command has ended, what it has left running gets SIGTERM, and SIGKILL half a margin later.
Then the lock is released. Start daemons by a service manager, not under the lock.

If leasehold is killed, the guard releases the lock. Once nothing of the command is left, it waits
for --crash-drain (1 s), because requests that the command has sent may still arrive.

- It never releases the lock while a process of the command runs, or after the TTL. It reports on
  standard error what it does.
- It closes standard input and output before the wait, and standard error at the first failure, so
  that a pipeline does not wait for it.
- While the store cannot be reached, it tries again until the TTL has passed.
- It opens the store with the environment of leasehold. It gets the handle of the term over a
  socket, so the command cannot see the handle.
- The store refuses a renewal of the dead leasehold that arrives later, because the object has
  changed.
- The lock is free only after the TTL with --on-crash keep, in a table, if the guard or the machine
  fails too, and if leasehold is process 1 of a container, because the guard ends with it.

Not covered:

- A process that is not started below the command: a container, a unit of systemd, a job on another
  machine. Let that process run leasehold.
- Without a control group: a process that leasehold may not kill, such as one under sudo. Run
  leasehold under sudo instead.
- A process in an uninterruptible system call. It is dead when the call returns.
- A machine or cgroup that is frozen as a whole and continues later: the command may run for some
  milliseconds before it is killed.
- If the guard is killed: a process that has left the process group and the control group, and has
  emptied its environment or does not let leasehold read it.
- leasehold and the guard stopped or killed at the same time. If both are killed, the command is
  dead on Linux, but not what it has started.
- On systems other than Linux, a process that has left the process group.
- "break" by an operator releases the lock at once. The command is ended at the next renewal.
- Writes that are already on their way. Pass LEASEHOLD_TOKEN to what you write to, and let it refuse
  lower tokens.

Without a /proc, or in a PID namespace that sees the /proc of another one, as after unshare --pid
--fork, "run" and "elect" exit with 78 and start nothing. Add --mount-proc to unshare.`},
	{"exit-codes", "The meaning of each exit code", exitCodeTable() + `

After 64, 69, 75, 77, 78, 126 and 127, the command of "run" has not run. The same is true of the code
of --held-code if the lock was held. After 70, 79 and 128+n, a part of it may have run. A missing
interpreter may show only when the command is started: then a token is used, and the lock is free
again.

"elect" exits with 0 after SIGINT, SIGTERM and SIGQUIT. It never exits with 75, 79 or the command's
code, because it waits without limit, and campaigns again after a lost lease and at the end of the
command.

Every request has 10 seconds, with all retries of the SDK. So the code is 69 for a store that accepts
connections and never answers, and for an endpoint that answers with web pages. "status" of several
locks shows a lock that cannot be read as unknown. "list" ends at the first request that fails.

If the store refuses to create the lock although it has no object there, another candidate may be
creating it. With --no-wait, leasehold tries again for a TTL. Then it exits with 69 and not 75,
because the lock is not held.`},
	{"signals", "Signals, files and the terminal of the command",
		`SIGINT, SIGTERM, SIGHUP and SIGQUIT go to the command's process group. SIGCONT follows them, so that
a stopped command ends too. SIGUSR1 and SIGUSR2 go to the command alone, because by default they kill.
The lease is renewed until the command has ended. If the release then fails, "run" tries again until
the lease would have ended, but for 30 s at most after one of the first four signals.

"elect" ends after SIGINT, SIGTERM and SIGQUIT, and after SIGHUP if its terminal was closed. A command
of --on-new-leader that still runs gets SIGTERM, and SIGKILL 5 s later.

If a signal has ended the command, "run" ends by the same signal, without a core file. So a script
whose command was interrupted by Ctrl-C ends there. leasehold itself does the same while it waits. A
shell shows 128+n. Process 1 of a container, which no signal ends, exits with 128+n. After the loss of
the lease, the exit code is 79. SIGHUP and SIGINT that were ignored, as under nohup, stay ignored.

If leasehold is process 1 of a container, it reaps all processes without a parent, even after docker
exec.

The command gets standard input, standard output and all other open files. The guard closes its copies
of files above standard error. So if leasehold is killed, the guard does not keep a lock of flock(1)
that the caller holds. A standard file that is closed counts as /dev/null, except that "acquire"
refuses to print a handle there. A script without a #! line runs in /bin/sh.

The command runs in the background of the terminal until it reads from it, and then gets the terminal.
Ctrl-C reaches it in both cases. Ctrl-Z does nothing, because a suspended command would lose its lock.
A command that was started with & and reads from the terminal is stopped, and holds the lock: fg
continues it. If the terminal was closed, the command gets SIGHUP.

leasehold and the guard start the threads that they need before the command, about 25 and 15. These
count against a limit on processes. Both continue if the command reaches that limit.`},
	{"steps", "How the steps of a pipeline share a lock",
		`A handle is for a lock that spans several steps, each a separate process. If one command needs the
lock, use "run".

A handle is a secret: any process that has it can release the lock, and it names the server that gets
your credentials. --handle-file keeps it out of logs, in a file that only its owner can read.

- Give each job a separate file, because an "acquire" that fails does not change the file.
- Before it takes the lock, "acquire" refuses a file with the handle of another lock or with another
  text, and a path that is a device, a pipe or a symbolic link.
- All commands refuse a file that belongs to another user or that other users may write.

"renew" succeeds only if no other holder has had the lock since "acquire". It does not guard the step
that follows: if two steps must never run at once, use "run" in one step. If "hold" does not renew the
lease, the TTL must cover the longest step, and a job that was cancelled leaves the lock taken for a
TTL.

"hold" does not end with the shell that has started it. Its log has the reason why it ended, but steps
do not read the log: begin a step that must not run without the lock with "renew". Temporary
credentials in its environment must last as long as it runs. In a container, leave --while out if
the process is not visible from there.

A renewal costs a read and a write. A release costs a read and two writes: it renews the lease, and
ends the term. If the store fails between the two, the lock is free after its TTL.

With --slots, --shared or --lock, the handle is for a member of the table with one lease. "renew",
"hold" and "release" print the token of that lease. These things differ:

- The TTL of "acquire" cannot be changed, so "renew --ttl" is refused.
- After its release, a second "release" or a "renew" exits with 79. "hold" ends with 0 if the release
  comes before the lease would have ended.
- "acquire" does not replace a --handle-file with the handle of another valid lease of the table. It
  reports that after it has waited, and releases the lock.`},
	{"tables", "Locks in a table: counted, shared and in order",
		`With --slots, --shared or --lock, the URL of "run" and "acquire" names a table of locks:

  run --slots 3   up to three holders at once
  run --shared    any number of shared holders
  run --lock run  one holder, and no shared holder: the same lock

--lock names the lock in the table (default run). Waiting commands get the lock in the order in which
they asked. LEASEHOLD_LOCK is the name of the lock, LEASEHOLD_TOKEN the revision of the table that has
granted it, and LEASEHOLD_HOLDER the name of this process as a member. The tokens of a lock rise from
one exclusive holder to the next.

The command is dead before another holder can have the lock, as under a single lock. If leasehold is
killed, the lock is free after the TTL. --listen does not work with a table.

"status" shows the members of a table, and its holders and waiting commands in order, with their
holder names (--holder), as held, waiting or expired. A member is expired if its lock should have been
renewed by now, or its term has ended, and so are its requests.

"break" refuses a table. Break the term of a member by the URL of the member's lock: its command is
ended at its next renewal, and its locks pass on after the TTL.`},
	{"listen", "Leadership over HTTP: --listen and --admin",
		`"run" and "elect" with --listen HOST:PORT serve:

  /leader       200 while the lease is held, from before the command starts
                until it has ended, and else 503; the JSON has "leading" only
  /healthz      200; or 503 with the reason, if the store has not answered for
                two TTLs, if each attempt to take a free lock has failed for as
                long, or if a command outlives its lease
  /.leasehold/  requests of other candidates

Candidates with --listen follow the leader. When its command has ended, the leader passes the lock to
one of them, which leads after one write. That is the candidate with the highest --priority (default
0), and among equals the one that started last, so a rolling restart changes the leader once. If the
candidate does not take the lock within a second, the lock is released. A candidate without --listen
gets the lock only if no candidate with --listen waits.

- --advertise URL is needed if the others do not reach this process at http://HOST:PORT: behind a
  proxy, or with --listen :8080, which is every address of the machine. The lock's record has it as
  the metadata "url", and "status -o json" shows it. A candidate that cannot use the URL logs that
  once, and polls.
- A client that reaches the port can read whether this process leads, and nothing else. Only a process
  that can read the lock's record can wait for the end of the term. No request changes the lock. Use a
  proxy for TLS.
- There are at most 500 connections and 400 waiting requests. One more connection closes the one that
  was idle for longest. A request must arrive within 10 s.
- If leasehold is killed, the port is free at once. At the end, waiting requests are answered first. A
  client with an open connection delays the end by a second at most.

"elect --admin 127.0.0.1:8081" serves POST /handover?to=HOLDER for operators. It ends the command, and
passes the lock to the candidate with that --holder; without "to", to the first in line. Every client
that reaches the address can do this, so it has no default. The answers:

  200  the candidate has the lock
  400  "to" is empty; nothing has changed
  403  the request comes from a page in a browser; nothing has changed
  404  no such candidate waits here; nothing has changed
  409  this process does not lead; nothing has changed
  502  the command has ended, but the candidate was not seen to take the lock;
       the text names the holder, or reports that the lock is free`},
	{"output", "Results, messages and completion",
		`Results go to standard output, and messages and errors to standard error. With -o json, each is one
JSON object per line. In text, names are escaped if they have control characters, marks of text
direction or bytes that are not UTF-8, because other people may have written them. JSON has the names
unchanged.

On a terminal, states have colours, and "run" and "acquire" show how long they have waited, and until
when the lock is held unless it is renewed. NO_COLOR, TERM=dumb and an empty TERM turn the colours off;
the last two also turn off the count. Elsewhere, messages are lines of name=value. Without -v, empty
fields of an SDK's errors are left out.

No lease waits for a reader of standard error. While the reader is stopped, such as a pager, up to 256
lines are kept, further lines are dropped, and a later line reports how many.

TAB completes commands, flags, the values of --on-crash and --output, and URLs by the keys in the
store. A store that does not answer within a second completes nothing.`},
	{"checks", "The checks of doctor", `A check fails, or warns (w), for these reasons:

  endpoint       the server cannot be reached
  region         it is another region than the bucket's
  credentials    they are missing or refused
  bucket         it does not exist, or belongs at the other place of the URL
                 (path-style)
  list, get      a permission is missing
  put            a permission is missing; or a read does not show the write
                 before it, because a cache answers the read
  delete         only with createonly=1, where old versions pile up; else locks
                 do not need it, but three objects of the doctor stay, and are
                 used again
  conditions     the server does not enforce the conditions of writes; if it
                 can only create objects, the advice is createonly=1
  etag           the server refuses the ETag that it has just returned
  clock (w)      Date and Last-Modified come from different clocks, or differ
                 from this machine's clock by 5 minutes
  latency (w)    the suitable TTL is above 15 s: "run" gives up a request
                 after a ninth of the TTL, and that should be twice the time
                 of the slowest of 20 requests
  sides          two endpoints do not show one bucket or container
  versioning (w) each renewal stays as a version for ever
  lifecycle      a rule deletes the lock, so that tokens start again, or moves
                 it to Glacier
  object lock (w)
                 each renewal stays as a version for the time of retention;
                 fails if the server keeps the only version, so that no lock
                 can be renewed
  overwriting    never: it shows whether a policy refuses writes without a
                 condition

Of Cloud Storage:

  retention      a policy forbids renewals
  soft delete (w)
                 each renewal is kept for a time

Of Azure:

  lease, immutability, legal hold
                 the lock's blob cannot be written
  versioning (w), soft delete (w)
                 each renewal is kept
  hierarchical namespace (w)
                 such accounts have not been tried

Of a directory:

  directory      it is missing; warns if it is sticky, or if every user may
                 write to it
  disk (w)       the directory is in memory, so tokens start again after a boot`},
}

func exitCodeTable() string {
	var b strings.Builder
	for _, e := range exit.Codes {
		const indent = 17
		meaning := wrap(strings.ReplaceAll(e.Meaning, "`", `"`), columns-indent)
		fmt.Fprintf(&b, "  %-*s%s\n", indent-2, e.Code,
			strings.ReplaceAll(meaning, "\n", "\n"+strings.Repeat(" ", indent)))
	}
	return "If the command has such an exit code, only the message of leasehold shows the difference.\n\n" +
		strings.TrimSuffix(b.String(), "\n")
}
