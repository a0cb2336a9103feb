#!/usr/bin/env bash
# Starts a Ceph of one machine with its S3 gateway on loopback, in memory, in about 45 s, and prints the endpoint. DIR must not exist, and
# its name must be short, because sockets go there. The keys are AKTEST and SKTEST. Stop it by killing the pids in DIR/run/*.pid.
# Needs, of Debian 12: apt-get install --no-install-recommends ceph-mon ceph-osd ceph-mgr radosgw ceph-common ceph-base
# Usage: radosgw.sh DIR [PORT]; the two ports above PORT are used as well
set -euo pipefail
dir=$(realpath -m "${1:?directory}")
port=${2:-7480}
for program in ceph-mon ceph-osd ceph-mgr radosgw radosgw-admin ceph-authtool monmaptool; do
	command -v "$program" >/dev/null || { echo "$program is not installed: see the head of $0" >&2; exit 1; }
done
mkdir "$dir" # fails if it is there
mkdir "$dir"/{mon,osd,mgr,run,log,rgw}
cd "$dir"
fsid=$(cat /proc/sys/kernel/random/uuid)
cat >ceph.conf <<END
[global]
fsid = $fsid
mon host = [v2:127.0.0.1:$((port + 1)),v1:127.0.0.1:$((port + 2))]
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
osd crush chooseleaf type = 0
mon data avail crit = 1
run dir = $dir/run
log file = $dir/log/\$name.log
admin socket = $dir/run/\$name.\$pid.asok
pid file = $dir/run/\$name.pid
public network = 127.0.0.0/8
keyring = $dir/keyring
[mon.a]
mon data = $dir/mon
[mgr.x]
mgr data = $dir/mgr
[osd.0]
osd data = $dir/osd
osd objectstore = memstore
memstore device bytes = 2147483648
[client.rgw.x]
rgw frontends = beast endpoint=127.0.0.1:$port
rgw data = $dir/rgw
END
key() { ceph-authtool keyring --gen-key -n "$@" >/dev/null; }
ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *' >/dev/null
key client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
key client.rgw.x --cap mon 'allow rw' --cap osd 'allow rwx' --cap mgr 'allow rw'
key osd.0 --cap mon 'allow profile osd' --cap osd 'allow *' --cap mgr 'allow profile osd'
key mgr.x --cap mon 'allow profile mgr' --cap osd 'allow *'
monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$((port + 1)),v1:127.0.0.1:$((port + 2))]" monmap >/dev/null
ceph-mon -c ceph.conf --mkfs -i a --monmap monmap --keyring keyring
cp keyring mon/keyring
exec 3>&1 >start.log 2>&1 # the servers keep what they inherit
ceph-mon -c ceph.conf -i a 3>&-
ceph() { timeout 30 /usr/bin/ceph -c "$dir/ceph.conf" "$@"; }
for ((i = 0; i < 60; i++)); do ceph -s && break || sleep 1; done
ceph auth import -i keyring
osd=$(cat /proc/sys/kernel/random/uuid)
ceph osd new "$osd"
ceph-osd -c ceph.conf -i 0 --mkfs --osd-uuid "$osd" --osd-data "$dir/osd"
ceph-mgr -c ceph.conf -i x 3>&-
ceph-osd -c ceph.conf -i 0 3>&-
timeout 300 radosgw -c ceph.conf -n client.rgw.x 3>&-
for ((i = 0; i < 120; i++)); do (exec 4<>"/dev/tcp/127.0.0.1/$port") && break || sleep 1; done
radosgw-admin -c ceph.conf -n client.rgw.x user create --uid t --display-name t --access-key AKTEST --secret-key SKTEST
echo "http://127.0.0.1:$port" >&3
