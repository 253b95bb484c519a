#!/bin/sh
# Starts the member of one pod. The first pod founds a cluster of one; every other pod joins as a learner and is promoted when it has
# caught up. A pod that has data starts with it, and one whose disk was lost is replaced. A restored snapshot is the first pod's data.
#
# POD_NAME, PEER_DOMAIN (of the headless service), CLUSTER_TOKEN; SETTINGS, with files: `replicas`, and `found`, which says yes while a new
# cluster may be founded. They are files so that a change of them restarts no pod.
# CLIENT_SCHEME, CLIENT_PORT, PEER_SCHEME, PEER_PORT, LISTEN, METRICS_URL; DATA_DIR; RESTORE_FROM; ETCDCTL_* for TLS and the user.
set -eu

base=${POD_NAME%-*}
ordinal=${POD_NAME##*-}
REPLICAS=$(cat "$SETTINGS/replicas")

host() { echo "$base-$1.$PEER_DOMAIN"; }
peer_url() { echo "$PEER_SCHEME://$(host "$1"):$PEER_PORT"; }
client_url() { echo "$CLIENT_SCHEME://$(host "$1"):$CLIENT_PORT"; }
say() { echo "start: $*" >&2; }

# The endpoints of all other pods, joined by commas.
others() {
  all='' pod=0
  while [ "$pod" -lt "$REPLICAS" ]; do
    [ "$pod" = "$ordinal" ] || all="$all${all:+,}$(client_url "$pod")"
    pod=$((pod + 1))
  done
  echo "$all"
}

# etcdctl at the other pods: the first that answers counts.
ask() { etcdctl --endpoints="$others" --dial-timeout=2s --command-timeout=5s "$@"; }

# The line of the member with this pod's address: id, status, name, peer URLs, client URLs, whether it is a learner.
mine() { grep -F ", $(peer_url "$ordinal"), " || true; }

field() { cut -d, -f"$1" | tr -d ' '; }

# What --initial-cluster says of the members in a list: a member that was never started has no name, but its address begins with it.
initial_cluster() {
  while IFS=, read -r _ _ _ peers _; do
    peers=${peers# } name=${peers#*://}
    echo "${name%%.*}=$peers"
  done | tr '\n' ',' | sed 's/,$//'
}

# Whether another pod has an address: then there is a cluster, even if it does not answer now.
is_alone() {
  pod=0
  while [ "$pod" -lt "$REPLICAS" ]; do
    if [ "$pod" != "$ordinal" ] && nslookup "$(host "$pod")" >/dev/null 2>&1; then return 1; fi
    pod=$((pod + 1))
  done
}

# Adds this pod to the cluster and prints the members: waits for a quorum, and for the learner before it.
join() {
  while :; do
    if members=$(ask member list); then
      member=$(echo "$members" | mine)
      case $(echo "$member" | field 2) in
        unstarted) echo "$members"; return ;;
        started)
          say "the data of member $(echo "$member" | field 1) is lost: it is replaced"
          ask member remove "$(echo "$member" | field 1)" >&2 || true
          ;;
        *) ask member add "$POD_NAME" --learner --peer-urls="$(peer_url "$ordinal")" >&2 || true ;;
      esac
    fi
    sleep 1
  done
}

# Makes a voter of this pod's member once it has caught up.
promote() {
  while :; do
    if members=$(ask member list 2>/dev/null); then
      member=$(echo "$members" | mine)
      if [ "$(echo "$member" | field 6)" != true ]; then return; fi
      ask member promote "$(echo "$member" | field 1)" >/dev/null 2>&1 || true
    fi
    sleep 1
  done
}

serve() {
  if [ -n "$others" ]; then promote & fi
  exec etcd --name="$POD_NAME" --data-dir="$DATA_DIR" \
    --listen-client-urls="$CLIENT_SCHEME://$LISTEN:$CLIENT_PORT" --advertise-client-urls="$(client_url "$ordinal")" \
    --listen-peer-urls="$PEER_SCHEME://$LISTEN:$PEER_PORT" --initial-advertise-peer-urls="$(peer_url "$ordinal")" \
    --listen-metrics-urls="$METRICS_URL" --initial-cluster-token="$CLUSTER_TOKEN" "$@"
}

others=$(others)
if [ -d "$DATA_DIR/member" ]; then
  say "going on with the data in $DATA_DIR"
  serve
fi
if [ "$ordinal" = 0 ] && [ "$(cat "$SETTINGS/found")" = yes ] && { [ -z "$others" ] || { ! ask member list >/dev/null 2>&1 && is_alone; }; }; then
  alone="$POD_NAME=$(peer_url 0)"
  if [ -n "${RESTORE_FROM:-}" ]; then
    say "restoring $RESTORE_FROM"
    rm -rf "$DATA_DIR.restored"
    etcdutl snapshot restore "$RESTORE_FROM" --data-dir="$DATA_DIR.restored" --name="$POD_NAME" --initial-cluster="$alone" \
      --initial-advertise-peer-urls="$(peer_url 0)" --initial-cluster-token="$CLUSTER_TOKEN"
    mv "$DATA_DIR.restored" "$DATA_DIR"
    serve
  fi
  say "founding a cluster"
  serve --initial-cluster-state=new --initial-cluster="$alone"
fi
if [ -z "$others" ]; then
  say "$DATA_DIR is empty, and no new cluster may be founded: restore a snapshot, or set found=true if the data may be lost"
  exit 1
fi
say "joining a cluster"
members=$(join)
serve --initial-cluster-state=existing --initial-cluster="$(echo "$members" | initial_cluster)"
