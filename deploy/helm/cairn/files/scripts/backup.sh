#!/bin/sh
# Saves a snapshot, looks whether it is whole, and keeps the newest KEEP of them. BACKUP_DIR, KEEP, NAME, ENDPOINT, ETCDCTL_*.
set -eu

file=$BACKUP_DIR/$NAME-$(date -u +%Y%m%dT%H%M%SZ).db
trap 'rm -f "$file.part"' EXIT
etcdctl --endpoints="$ENDPOINT" --command-timeout="${TIMEOUT:-10m}" snapshot save "$file.part"
etcdutl snapshot status "$file.part"
sync
mv "$file.part" "$file"
ls -1 "$BACKUP_DIR" | grep "^$NAME-[0-9]\{8\}T[0-9]\{6\}Z\.db$" | sort -r | tail -n "+$((KEEP + 1))" | while read -r old; do
  echo "backup: removing $old" >&2
  rm -f "$BACKUP_DIR/$old"
done
