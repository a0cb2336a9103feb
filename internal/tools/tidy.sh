#!/usr/bin/env bash
# Tidies go.mod and go.sum of every module of the workspace, and go.work; with -check it only says what is not tidy.
#
# "go mod tidy" ignores the workspace, and a nested module requires its siblings at versions that no proxy has before
# they are tagged. A replace in go.mod would help tidy but break "go install …@version" for users. So tidy works on a
# copy of go.mod with the replaces added, and they are taken out again. Checksums of required, released siblings are kept.
#
# In a workspace, too, go reads the go.mod of the sibling version that is required, so go.work maps to the directories:
# the version that stands for "not released yet", and every version that a module requires since a release.
set -euo pipefail
cd "$(dirname "$0")/../.."

unreleased=v0.0.0-00010101000000-000000000000
check=false
[ "${1-}" != -check ] || check=true
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

paths=() dirs=() abs=() mods=() work=()
while read -r dir; do
	path=$(awk '$1 == "module" { print $2 }' "$dir/go.mod")
	paths+=("$path")
	dirs+=("$dir")
	abs+=("$(cd "$dir" && pwd)") # go finds packages twice under a path that ends in /.
	mods+=("$dir/go.mod")
done < <(go work edit -json | awk -F'"' '$2 == "DiskPath" { print $4 }' | sed 's|^\.$|./|')

# versions PATH FILE... prints the versions of the module that the files require or replace.
versions() {
	awk -v path="$1" '{ sub(/^(require|replace) /, "") } $1 == path && $2 ~ /^v/ { print $2 }' "${@:2}" | sort -u
}

# settle FILE COPY takes the copy if the two differ, or says how they do.
settle() {
	cmp -s "$1" "$2" && return
	bad=1
	if $check; then
		diff -u --label "$1" --label "$1, tidy" "$1" "$2" || true
	else
		cp "$2" "$1"
		echo "tidied $1"
	fi
}

for i in "${!paths[@]}"; do
	wanted=" $unreleased $(versions "${paths[i]}" "${mods[@]}" | tr '\n' ' ')"
	for version in $(versions "${paths[i]}" go.work); do
		[[ $wanted == *" $version "* ]] || work+=("-dropreplace=${paths[i]}@$version")
	done
	for version in $wanted; do
		work+=("-replace=${paths[i]}@$version=${dirs[i]}")
	done
done
cp go.work "$tmp/go.work"
GOWORK="$tmp/go.work" go work edit "${work[@]}"
settle go.work "$tmp/go.work"

for i in "${!paths[@]}"; do
	path=${paths[i]} dir=${dirs[i]%/}
	cp "$dir/go.mod" "$tmp/go.mod"
	touch "$dir/go.sum"
	cp "$dir/go.sum" "$tmp/go.sum"
	add=() drop=() siblings=()
	for j in "${!paths[@]}"; do
		[ "$i" != "$j" ] || continue
		add+=("-replace=${paths[j]}=${abs[j]}")
		drop+=("-dropreplace=${paths[j]}")
		for version in $(versions "${paths[j]}" "$dir/go.mod"); do
			siblings+=(-e "${paths[j]} $version " -e "${paths[j]} $version/go.mod ")
		done
	done
	[ ${#add[@]} = 0 ] || go mod edit "${add[@]}" "$tmp/go.mod"
	(cd "$dir" && GOWORK=off GOFLAGS= go mod tidy -modfile="$tmp/go.mod")
	[ ${#drop[@]} = 0 ] || go mod edit "${drop[@]}" "$tmp/go.mod"
	# go reorders go.sum as it likes: only the set of lines counts
	{
		cat "$tmp/go.sum"
		[ ${#siblings[@]} = 0 ] || grep -F "${siblings[@]}" "$dir/go.sum" || true
	} | LC_ALL=C sort -u >"$tmp/new.sum"
	settle "$dir/go.mod" "$tmp/go.mod"
	LC_ALL=C sort -u "$dir/go.sum" | cmp -s - "$tmp/new.sum" || settle "$dir/go.sum" "$tmp/new.sum"
done

if $check && [ $bad = 1 ]; then
	echo "not tidy: run make tidy" >&2
	exit 1
fi
