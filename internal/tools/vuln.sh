#!/usr/bin/env bash
# Runs govulncheck on the module in the current directory. Not being able to ask is reported, not a failure.
set -uo pipefail

out=$("$1" ./... 2>&1)
status=$?
if [ $status != 0 ] && [ $status != 3 ] && grep -qE 'vuln\.go\.dev' <<<"$out"; then # 3: vulnerabilities found
	echo "govulncheck: NOT CHECKED, the vulnerability database cannot be reached:"
	tail -n 2 <<<"$out"
	exit 0
fi
echo "$out"
exit $status
