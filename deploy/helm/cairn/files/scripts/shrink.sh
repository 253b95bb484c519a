#!/bin/sh
# Before there are fewer pods: removes the members of those that go, the last one first, so that the rest keeps its quorum.
# BASE (name of the pods without their number), REPLICAS (that stay), ENDPOINTS (of those), ETCDCTL_*.
set -eu

# A release that is not running has nothing to remove.
members=$(etcdctl --endpoints="$ENDPOINTS" member list) || {
  echo "shrink: no member answers: nothing is removed" >&2
  exit 1
}
echo "$members" | while IFS=, read -r id _ name _; do
  name=${name# } number=${name##*-}
  case $number in '' | *[!0-9]*) continue ;; esac
  if [ "$name" = "$BASE-$number" ] && [ "$number" -ge "$REPLICAS" ]; then echo "$number $id"; fi
done | sort -rn | while read -r number id; do
  echo "shrink: removing $BASE-$number ($id)" >&2
  tries=0
  # The cluster refuses while a member is away that the quorum needs.
  until etcdctl --endpoints="$ENDPOINTS" member remove "$id"; do
    tries=$((tries + 1))
    [ "$tries" -lt 30 ] || exit 1
    sleep 2
  done
done
