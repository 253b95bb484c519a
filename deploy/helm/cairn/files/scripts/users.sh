#!/bin/sh
# Makes the user root and switches authentication on, then makes the other users. What exists is left as it is, so it may run again.
# ENDPOINTS, ROOT_PASSWORD, USERS_DIR (a file for each user: its password), GRANTS ("user role" lines), ROLES ("role kind prefix" lines), ETCDCTL_*.
set -eu

# Passwords are arguments, since etcdctl reads one from its input only up to the first space; no other process is in this container.
ctl() { etcdctl --endpoints="$ENDPOINTS" --command-timeout=30s "$@"; }
as_root() { ETCDCTL_USER=root ETCDCTL_PASSWORD=$ROOT_PASSWORD ctl "$@"; }
# Says whether a failure means that it is done already.
make() {
  if output=$(as_root "$@" 2>&1); then return; fi
  case $output in
    *"already exists"*) ;;
    *) echo "users: $1 $2: $output" >&2; return 1 ;;
  esac
}

if [ "$(as_root auth status 2>/dev/null | grep -c 'Status: true')" = 0 ]; then
  ctl user add root --new-user-password="$ROOT_PASSWORD" 2>&1 || true
  ctl role add root 2>&1 || true
  ctl user grant-role root root
  ctl auth enable
fi
echo "$ROLES" | while read -r role kind prefix; do
  [ -n "$role" ] || continue
  make role add "$role"
  # Granting again replaces what the role had for the prefix.
  as_root role grant-permission "$role" "$kind" --prefix=true -- "$prefix" >/dev/null
done
for file in "$USERS_DIR"/*; do
  [ -f "$file" ] || continue
  user=${file##*/}
  if ! as_root user get "$user" >/dev/null 2>&1; then as_root user add "$user" --new-user-password="$(cat "$file")"; fi
done
echo "$GRANTS" | while read -r user role; do
  [ -n "$user" ] || continue
  as_root user grant-role "$user" "$role" >/dev/null
done
