package itest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// The functions withGoose and withMigrate stand word for word in docs/integrations.md.

func withGoose(ctx context.Context, lock *leasehold.Lock, db *sql.DB, migrations fs.FS) error {
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations)
	if err != nil {
		return err
	}
	return lock.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
		// if the lease is lost, ctx ends: the statement is interrupted and its transaction rolled
		// back
		_, err := provider.Up(ctx)
		return err
	})
}

func withMigrate(ctx context.Context, lock *leasehold.Lock, m *migrate.Migrate) error {
	return lock.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
		for ctx.Err() == nil { // if the lease is lost, no further migration begins
			switch err := m.Steps(1); {
			case err == fs.ErrNotExist: // itself, not wrapped: there is no further one
				_, _, err := m.Version() // migrate.ErrNilVersion: there was none at all
				return err
			case err != nil:
				return err
			}
		}
		return ctx.Err()
	})
}

// migrations are the same for both tools: each is a list of scripts.
type migrationTool struct {
	name string
	file string // of script number %d
	head string
	up   func(t require.TestingT, ctx context.Context, lock *leasehold.Lock, db *sql.DB, migrations fs.FS) error
}

var migrationTools = []migrationTool{
	{"goose", "%05d_step.sql", "-- +goose Up\n", func(_ require.TestingT, ctx context.Context, lock *leasehold.Lock,
		db *sql.DB, migrations fs.FS) error {
		return withGoose(ctx, lock, db, migrations)
	}},
	{"golang-migrate", "%d_step.up.sql", "", func(t require.TestingT, ctx context.Context, lock *leasehold.Lock,
		db *sql.DB, migrations fs.FS) error {
		return withMigrate(ctx, lock, newMigrate(t, db, migrations))
	}},
}

func newMigrate(t require.TestingT, db *sql.DB, migrations fs.FS) *migrate.Migrate {
	source, err := iofs.New(migrations, ".")
	require.NoError(t, err)
	target, err := migratesqlite.WithInstance(db, &migratesqlite.Config{})
	require.NoError(t, err)
	m, err := migrate.NewWithInstance("iofs", source, "sqlite", target)
	require.NoError(t, err)
	return m
}

func (tool migrationTool) scripts(scripts ...string) fs.FS {
	files := fstest.MapFS{}
	for i, script := range scripts {
		files[fmt.Sprintf(tool.file, i+1)] = &fstest.MapFile{Data: []byte(tool.head + script)}
	}
	return files
}

func openSQLite(t require.TestingT, path string) *sql.DB {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(120000)")
	require.NoError(t, err)
	return db
}

// once fails if it runs twice, and takes long enough for others to come meanwhile.
const once = `CREATE TABLE ran (n INTEGER); INSERT INTO ran
	WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 200000) SELECT count(*) FROM n;`

const instances = 3 // in each process

// asMigrator is the test binary's main function when it runs as one of several processes that start
// at the same time.
func asMigrator() {
	server := serverFromEnv()
	var running sync.WaitGroup
	for range instances {
		running.Go(func() {
			store := leasehold.NewS3Store(server.Client(), os.Getenv("HOLDER_BUCKET"))
			lock, err := leasehold.NewLock(store, "locks/migration", leasehold.WithTTL(10*time.Second),
				leasehold.WithPollInterval(400*time.Millisecond))
			fatal(err)
			for _, tool := range migrationTools {
				if tool.name == os.Getenv("MIGRATOR") {
					fatal(tool.up(panicking{}, context.Background(), lock,
						openSQLite(panicking{}, os.Getenv("MIGRATOR_DB")), tool.scripts(once)))
				}
			}
		})
	}
	running.Wait()
}

// panicking is the TestingT of a process that is not a test.
type panicking struct{}

func (panicking) Errorf(format string, args ...any) { fmt.Printf(format, args...) }
func (panicking) FailNow()                          { os.Exit(1) }

// Two processes with three instances each start at the same moment: each waits for the lock, and
// the first one migrates.
func TestMigrationsRunOnce(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		for _, tool := range migrationTools {
			t.Run(tool.name, func(t *testing.T) {
				t.Parallel()
				bucket, path := server.Bucket(t), filepath.Join(t.TempDir(), "app.db")
				ended := make(chan error)
				for range 2 {
					cmd := exec.CommandContext(minute(t), os.Args[0], "-test.run=^$")
					cmd.Env = append(holderEnv(server, bucket), "MIGRATOR="+tool.name, "MIGRATOR_DB="+path)
					go func() {
						out, err := cmd.CombinedOutput()
						if err != nil {
							err = fmt.Errorf("%w: %s", err, out)
						}
						ended <- err
					}()
				}
				for range 2 {
					require.NoError(t, <-ended)
				}
				var ran int
				db := openSQLite(t, path)
				require.NoError(t, db.QueryRow("SELECT count(*) FROM ran").Scan(&ran))
				require.NoError(t, db.Close())
				require.Equal(t, 1, ran)
				lock, err := leasehold.NewLock(leasehold.NewS3Store(server.Client(), bucket), "locks/migration")
				require.NoError(t, err)
				rec, err := lock.Inspect(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 2*instances, rec.Token, "every instance had its turn")
				require.True(t, rec.Released())
			})
		}
	})
}

// A database that is newer than the program's migrations is not taken for one that is up to date.
func TestMigrationOfANewerDatabase(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, filepath.Join(t.TempDir(), "app.db"))
	m := newMigrate(t, db, migrationTools[1].scripts("CREATE TABLE step1 (n INTEGER);"))
	require.NoError(t, m.Force(9))
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), "locks/migration")
	require.NoError(t, err)
	require.ErrorContains(t, withMigrate(t.Context(), lock, m), "no migration found for version 9")
	require.NoError(t, db.Close())
}

// inScript is called by the SQL function in_script().
var inScript func()

func init() {
	err := sqlite.RegisterScalarFunction("in_script", 0,
		func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
			inScript()
			return int64(1), nil
		})
	if err != nil {
		panic(err)
	}
}

// The lease is lost in the middle of the second of three migrations.
func TestMigrationLosesItsLease(t *testing.T) {
	t.Parallel()
	type state struct {
		path       string
		newLock    func() *leasehold.Lock
		lost       chan struct{}
		lock       *leasehold.Lock
		db         *sql.DB
		ended      chan error
		tables     func() []string
		migrations fs.FS
	}
	start := func(t *testing.T, tool migrationTool, second string, run func(context.Context, *state) error) *state {
		reached := make(chan struct{})
		inScript = sync.OnceFunc(func() { close(reached) })
		path := filepath.Join(t.TempDir(), "app.db")
		s := &state{path: path, db: openSQLite(t, path), ended: make(chan error), lost: make(chan struct{})}
		t.Cleanup(func() { require.NoError(t, s.db.Close()) })
		s.tables = func() (names []string) {
			rows, err := s.db.Query("SELECT name FROM sqlite_master WHERE name LIKE 'step_'")
			require.NoError(t, err)
			defer func() { require.NoError(t, rows.Close()) }()
			for rows.Next() {
				var name string
				require.NoError(t, rows.Scan(&name))
				names = append(names, name)
			}
			require.NoError(t, rows.Err())
			return names
		}
		store := leasehold.NewMemStore()
		s.newLock = func() *leasehold.Lock {
			lock, err := leasehold.NewLock(store, "locks/migration", leasehold.WithTTL(time.Second),
				leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
					if e.Kind == leasehold.EventLost {
						close(s.lost)
					}
				}))
			require.NoError(t, err)
			return lock
		}
		s.lock = s.newLock()
		s.migrations = tool.scripts("CREATE TABLE step1 (n INTEGER);", "CREATE TABLE step2 (n INTEGER);"+second,
			"CREATE TABLE step3 (n INTEGER);")
		go func() { s.ended <- run(t.Context(), s) }()
		receive(t, reached, "the second migration")
		rec, err := s.lock.Inspect(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.lock.Break(t.Context(), rec.Token))
		return s
	}

	// goose interrupts the statement, rolls the migration back, and begins no other.
	t.Run("goose", func(t *testing.T) {
		endless := "SELECT in_script(); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT " +
			"count(*) FROM n;"
		s := start(t, migrationTools[0], endless, func(ctx context.Context, s *state) error {
			return withGoose(ctx, s.lock, s.db, s.migrations)
		})
		require.ErrorIs(t, receive(t, s.ended, "the end of the migration"), leasehold.ErrLost)
		require.Equal(t, []string{"step1"}, s.tables())
		var version int
		require.NoError(t, s.db.QueryRow("SELECT max(version_id) FROM goose_db_version").Scan(&version))
		require.Equal(t, 1, version)
	})

	// golang-migrate takes no context: the migration that runs goes on, beside the next holder of
	// the lock. That one sees the mark "dirty" and refuses. After the running migration no other
	// begins.
	t.Run("golang-migrate", func(t *testing.T) {
		goOn, release := context.WithCancel(t.Context())
		defer release()
		var m *migrate.Migrate
		s := start(t, migrationTools[1], "SELECT in_script();", func(ctx context.Context, s *state) error {
			reached := inScript
			inScript = func() {
				reached()
				<-goOn.Done()
			}
			m = newMigrate(t, s.db, s.migrations)
			return withMigrate(ctx, s.lock, m)
		})
		receive(t, s.lost, "the loss of the lease")
		other := openSQLite(t, s.path)
		require.ErrorAs(t, withMigrate(t.Context(), s.newLock(), newMigrate(t, other, s.migrations)),
			new(migrate.ErrDirty))
		require.NoError(t, other.Close())
		release()
		require.ErrorIs(t, receive(t, s.ended, "the end of the migration"), leasehold.ErrLost)
		require.Equal(t, []string{"step1", "step2"}, s.tables())
		version, dirty, err := m.Version()
		require.NoError(t, err)
		require.EqualValues(t, 2, version)
		require.False(t, dirty)
	})
}
