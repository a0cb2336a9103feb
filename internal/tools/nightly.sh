#!/usr/bin/env bash
# Everything long, at full size. What has passed is not run again on the same code, so a run that was ended goes on where it was.
# One summary in the end, which stays in .nightly/<commit>/summary.txt. PART=pattern runs the parts whose names match.
# WORLDS is how many worlds of each kind run, in parts of 10,000, from seed number 1 on. LEASEHOLD_SIZE=short shows in minutes that every
# part starts and reports.
set -uo pipefail
cd "$(dirname "$0")/../.."
if [ -n "$(git status --porcelain)" ]; then
	echo "nightly: the work tree differs from its commit, so the summary would speak of no commit: commit first" >&2
	exit 1
fi
commit=$(git rev-parse --short=12 HEAD)
dir=.nightly/$commit
part=${PART:-.}
export LEASEHOLD_SIZE=${LEASEHOLD_SIZE:-full}
short() { [ "$LEASEHOLD_SIZE" = short ]; }
size() { if short; then echo "$1"; else echo "$2"; fi; }
count=${WORLDS:-$(size 100 100000)}
many=$((count < 10000 ? count : 10000))
dir=$dir$(size -short "")
mkdir -p "$dir"

failures=0
# step NAME COMMAND...: its output goes to a file, which is shown if it fails. Every ten seconds the terminal hears that it is running.
step() {
	local name=$1 start=$SECONDS log done
	shift
	[[ $name =~ $part ]] || return 0
	log=$dir/${name//[^a-zA-Z0-9]/-}.log
	done=${log%.log}.done
	if [ -e "$done" ]; then
		echo "--- $name: has passed"
		return 0
	fi
	echo "--- $name: $*"
	"$@" >"$log" 2>&1 </dev/null &
	local pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		sleep 1
		((SECONDS == start || (SECONDS - start) % 10)) || printf '    %s %4d s: %s\n' "$name" $((SECONDS - start)) "$(tail -c 300 "$log" | tail -n 1 | cut -c 1-120)"
	done
	if wait "$pid"; then
		printf '%6d s  %s  %s\n' $((SECONDS - start)) "$name" "$(key "$log")" | tee "$done"
	else
		failures=$((failures + 1))
		tail -n 60 "$log" >&2
		echo "FAILED: $name (all of it: $log)" | tee -a "$dir/failed"
	fi
}

# key is the line of a log that says how much was done.
key() {
	grep -hE '^[0-9]+ passed|worlds, .*virtual hours|mutants caught|trials|^ok' "$1" | tail -n 1 | sed 's/^ *[a-z_]*_test.go:[0-9]*: //' | cut -c 1-200
}

worlds() { go test -v -count=1 -timeout=24h -run "^$1\$" ./internal/proof/sim; }

: >"$dir/failed"
step "servers" make servers
if [[ "all tests" =~ $part ]]; then
	echo "--- Ceph's gateway"
	if make radosgw; then export LEASEHOLD_NEEDS="${LEASEHOLD_NEEDS:-} radosgw"; else echo "Ceph's gateway cannot be installed here: its tests will not run" >&2; fi
fi
if [[ bench =~ $part ]]; then
	echo "--- Redis and PostgreSQL"
	make databases || echo "Redis and PostgreSQL cannot be installed here: the bench leaves them out" >&2
fi
step "vet for other systems" make vet-systems
step "programs of all systems, and their sizes" make binaries
step "modules as users get them" make release-check
step "examples" make examples
# Vulnerabilities become known without a commit, so this part runs each time.
[[ "known vulnerabilities" =~ $part ]] && rm -f "$dir/known-vulnerabilities.done"
step "known vulnerabilities" make vuln
step "all tests" make test
step "command killed and stopped" make cli-deaths DEATHS="$(size 6 1000)"
# What all checks find without a mutant has just been seen, or is left out at the short size.
step "all mutants" make mutants RESULTS="$PWD/$dir/mutants.json" PASSED="$(if short || [ -e "$dir/all-tests.done" ]; then echo 1; fi)" WITHIN="$(size 2m "")"
step "exhaustive search" make explore EXPLORE="$(size "" all)"
for ((seed = 1; seed <= count; seed += 10000)); do
	SEEDS=$many SEED=$seed step "worlds of locks from $seed" worlds TestSeeds
	CREATEONLY=$((many / 10)) SEED=$seed step "worlds of create-only stores from $seed" worlds TestCreateOnlySeeds
	FENCED=$many SEED=$seed step "worlds of fenced writes from $seed" worlds TestFencedSeeds
	TABLES=$((many / 10)) SEED=$seed step "worlds of tables from $seed" worlds TestTableSeeds
done
step "fuzz tests" make fuzz FUZZTIME="$(size 1s 30s)"
step "bench" env BENCH="$(size short full)" BENCH_DOCS="$PWD/$dir" make bench-only

{
	echo "nightly run of $commit, $(git log -1 --format=%cI)"
	uname -srm
	go version
	cat "$dir"/*.done "$dir/failed"
} >"$dir/summary.txt"
cat "$dir/summary.txt"
exit $((failures > 0))
