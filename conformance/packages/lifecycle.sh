#!/bin/bash
# Runs in a booted Debian, as a service: installs the packages in /root, uses, upgrades and removes what they bring. The last line that it
# prints is PASSED.
set -eux

active() { [ "$(systemctl is-active etcd.service)" = active ]; }
inactive() { [ "$(systemctl is-active etcd.service)" != active ]; }
pid() { systemctl show --property=MainPID --value etcd.service; }

# What a package has brought, whichever kind it is.
check_service() {
  active
  [ "$(stat -c %U "/proc/$(pid)")" = etcd ]
  [ "$(stat -c '%U %a' /var/lib/etcd)" = 'etcd 700' ]
  etcdctl put greeting hello
  [ "$(etcdctl get greeting --print-value-only)" = hello ]
  cairn version
  etcd --version
  etcdctl version
  etcdutl version
  # How much systemd finds left open, of 10: docs/packages.md has the figure, for this release of systemd.
  [ "$(systemd-analyze security --offline=true --no-pager "$(systemctl show --property=FragmentPath --value etcd.service)" |
    sed -n 's/.* Overall exposure level for etcd.service: \([0-9.]*\) .*/\1/p')" = 1.6 ]
  for name in cairn etcd etcdctl etcdutl; do
    [ -e "/usr/share/man/man1/$name.1.gz" ]
    [ -e "/usr/share/bash-completion/completions/$name" ]
  done
}

# Puts keys while "$@" runs, and until as many were acknowledged after it; all that were acknowledged must be there then.
under_load() {
  local before load
  before=$(pid)
  rm -f /root/acked /root/enough
  touch /root/acked
  (
    set +x
    n=0
    while [ ! -e /root/enough ]; do
      if etcdctl put "load/$n" "$n" >/dev/null 2>&1; then echo "load/$n" >> /root/acked; fi
      n=$((n + 1))
    done
  ) &
  load=$!
  acked 30
  "$@"
  acked $(($(wc -l < /root/acked) + 30))
  touch /root/enough
  wait "$load"
  [ "$(pid)" != "$before" ]
  active
  etcdctl get --prefix load/ --keys-only | sort > /root/stored
  [ -z "$(sort /root/acked | comm -23 - /root/stored)" ]
}

# Waits until so many puts were acknowledged.
acked() {
  set +x
  for _ in $(seq 1200); do
    if [ "$(wc -l < /root/acked)" -ge "$1" ]; then set -x; return; fi
    sleep 0.1
  done
  echo "only $(wc -l < /root/acked) puts of $1 were acknowledged"
  return 1
}

echo "== Debian"
dpkg -i /root/one.deb
check_service
[ "$(systemctl is-enabled etcd.service)" = enabled ]
# Stands in for etcd-server.
dpkg -i /root/needs.deb
dpkg --remove needs-etcd
echo '# of the administrator' >> /etc/default/etcd
under_load dpkg -i /root/two.deb
grep -q 'of the administrator' /etc/default/etcd
dpkg --remove cairn
inactive
[ ! -e /usr/bin/etcd ]
[ -e /etc/default/etcd ]
[ -d /var/lib/etcd/default/member ]
# What is installed again goes on with the data.
dpkg -i /root/two.deb
active
[ "$(etcdctl get greeting --print-value-only)" = hello ]
dpkg --purge cairn
[ ! -e /etc/default/etcd ]
[ -d /var/lib/etcd/default/member ]
rm -rf /var/lib/etcd

echo "== RPM"
# The database of this system knows none of what Debian installed.
rpm --install --nodeps /root/one.rpm
systemctl start etcd.service
check_service
under_load rpm --upgrade --nodeps /root/two.rpm
rpm --erase cairn
inactive
[ ! -e /usr/bin/etcd ]
[ -d /var/lib/etcd/default/member ]
echo PASSED
