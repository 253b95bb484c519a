#!/bin/sh
# Starts the member of one pod. The first pod founds a cluster of one; every other pod joins as a learner and is promoted when it has
# caught up. A pod that has data starts with it, and one whose disk was lost is replaced. A restored snapshot is the first pod's data.
#
# A second cluster beside the first would lose data, and no name or answer that is missing proves that there is no first one. So the first
# pod founds only when every other pod has said itself that its disk is empty: until then it waits. docs/packages.md says why.
#
# POD_NAME, PEER_DOMAIN (of the headless service), CLUSTER_TOKEN; SETTINGS, with files: `replicas`, and `found`, which says yes while a new
# cluster may be founded. They are files so that a change of them restarts no pod.
# CLIENT_SCHEME, CLIENT_PORT, PEER_SCHEME, PEER_PORT, LISTEN, METRICS_URL; DATA_DIR; RESTORE_FROM; ETCDCTL_* for TLS and the user.
set -eu

base=${POD_NAME%-*}
ordinal=${POD_NAME##*-}

host() { echo "$base-$1.$PEER_DOMAIN"; }
peer_url() { echo "$PEER_SCHEME://$(host "$1"):$PEER_PORT"; }
client_url() { echo "$CLIENT_SCHEME://$(host "$1"):$CLIENT_PORT"; }
say() { echo "start: $*" >&2; }

# The numbers of all other pods.
others() {
  replicas=$(cat "$SETTINGS/replicas") pod=0
  while [ "$pod" -lt "$replicas" ]; do
    [ "$pod" = "$ordinal" ] || echo "$pod"
    pod=$((pod + 1))
  done
}

# Their endpoints, joined by commas.
endpoints() {
  all=''
  for pod in $(others); do all="$all${all:+,}$(client_url "$pod")"; done
  echo "$all"
}

# etcdctl at the other pods: the first that answers counts.
ask() { etcdctl --endpoints="$(endpoints)" --dial-timeout=2s --command-timeout=5s "$@"; }

# The line of the member with a pod's address: id, status, name, peer URLs, client URLs, whether it is a learner.
member_of() { grep -F ", $(peer_url "$1"), " || true; }

field() { cut -d, -f"$1" | tr -d ' '; }

# What --initial-cluster says of the members in a list: a member that was never started has no name, but its address begins with it.
initial_cluster() {
  while IFS=, read -r _ _ _ peers _; do
    peers=${peers# } name=${peers#*://}
    echo "${name%%.*}=$peers"
  done | tr '\n' ',' | sed 's/,$//'
}

# Waits a second, and says why: the first time and then every thirtieth, so that a long wait leaves a short log.
pause() {
  [ $((tries % 30)) != 0 ] || say "waiting: $*"
  tries=$((tries + 1))
  sleep 1
}

# What a pod says of its empty disk. The names tell it from the answer of another pod, or of another cluster, at an address that changed hands.
empty() { echo "$CLUSTER_TOKEN $base-$1: the disk is empty"; }

# Says so at the peer address, until a member answers or starts there.
speaker=''
say_empty() {
  [ -z "$speaker" ] || return 0
  mkdir -p "$DATA_DIR.empty"
  empty "$ordinal" >"$DATA_DIR.empty/disk"
  httpd -f -p "$LISTEN:$PEER_PORT" -h "$DATA_DIR.empty" &
  speaker=$!
}

stop_saying_empty() {
  [ -n "$speaker" ] || return 0
  kill "$speaker" 2>/dev/null || true
  wait "$speaker" 2>/dev/null || true
  speaker=''
  rm -rf "$DATA_DIR.empty"
}

# The names of the other pods that have not said that their disks are empty. Pods ask each other without the proxies of the environment.
doubtful() {
  for pod in $(others); do
    said=$(http_proxy='' timeout 5 wget -q -O - "http://$(host "$pod"):$PEER_PORT/disk" 2>/dev/null) || true
    [ "$said" = "$(empty "$pod")" ] || printf ' %s' "$base-$pod"
  done
}

# Waits until this pod may found a cluster, or fails because there is one to join or none may be founded.
may_found() {
  tries=0
  while [ "$(cat "$SETTINGS/found")" = yes ]; do
    [ -n "$(others)" ] || return 0
    if ask member list >/dev/null 2>&1; then return 1; fi
    doubtful=$(doubtful)
    [ -n "$doubtful" ] || return 0
    pause "no member answers, and no cluster is founded before these pods say that their disks are empty:$doubtful"
  done
  return 1
}

# The names of the pods before this one that are no voters in a list of members. Pods join in their order: the cluster takes one learner at a
# time, but might let in two that are added at the same moment, and none of them starts then.
before() {
  for pod in $(others); do
    [ "$pod" -lt "$ordinal" ] || break
    [ "$(echo "$1" | member_of "$pod" | field 6)" = false ] || printf ' %s' "$base-$pod"
  done
}

# Adds this pod to the cluster and sets `members`: waits for a quorum, and for the learner before it. While no member answers it says that the
# disk is empty; not longer, since members connect to this address once the pod is added, and what serves them then may hold the port.
join() {
  tries=0
  while :; do
    if members=$(ask member list 2>/dev/null); then
      stop_saying_empty
      member=$(echo "$members" | member_of "$ordinal") id=$(echo "$member" | field 1) before=$(before "$members")
      case $(echo "$member" | field 2) in
        unstarted)
          [ -n "$before" ] || return 0
          why="another learner is in the way, so this one leaves: $(ask member remove "$id" 2>&1 | tail -n 1)"
          ;;
        started) why="the data of member $id is lost, and it is replaced: $(ask member remove "$id" 2>&1 | tail -n 1)" ;;
        *)
          if [ -n "$before" ]; then
            why="pods join in their order, first$before"
          elif why=$(ask member add "$POD_NAME" --learner --peer-urls="$(peer_url "$ordinal")" 2>&1); then
            continue
          fi
          ;;
      esac
    else
      say_empty
      why="no member answers: $(ask member list 2>&1 | tail -n 1)"
      [ "$ordinal" != 0 ] || why="$why (no cluster is founded: if all data may be lost, or none was written yet, set found=true)"
    fi
    pause "$(echo "$why" | tail -n 1)"
  done
}

# Makes a voter of this pod's member once it has caught up.
promote() {
  while :; do
    if members=$(ask member list 2>/dev/null); then
      member=$(echo "$members" | member_of "$ordinal")
      if [ "$(echo "$member" | field 6)" != true ]; then return; fi
      ask member promote "$(echo "$member" | field 1)" >/dev/null 2>&1 || true
    fi
    sleep 1
  done
}

serve() {
  if [ -n "$(others)" ]; then promote & fi
  exec etcd --name="$POD_NAME" --data-dir="$DATA_DIR" \
    --listen-client-urls="$CLIENT_SCHEME://$LISTEN:$CLIENT_PORT" --advertise-client-urls="$(client_url "$ordinal")" \
    --listen-peer-urls="$PEER_SCHEME://$LISTEN:$PEER_PORT" --initial-advertise-peer-urls="$(peer_url "$ordinal")" \
    --listen-metrics-urls="$METRICS_URL" --initial-cluster-token="$CLUSTER_TOKEN" "$@"
}

if [ -d "$DATA_DIR/member" ]; then
  say "going on with the data in $DATA_DIR"
  serve
fi
if [ "$ordinal" = 0 ] && may_found; then
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
if [ -z "$(others)" ]; then
  say "$DATA_DIR is empty, and no new cluster may be founded: restore a snapshot, or set found=true if the data may be lost"
  exit 1
fi
say "joining a cluster"
join
serve --initial-cluster-state=existing --initial-cluster="$(echo "$members" | initial_cluster)"
