#!/bin/sh
# ssh does not run as a user id that has no name, such as one that a platform has chosen. Give it one, for this process alone.
while read -r key uid _; do
	[ "$key" != Uid: ] || break
done </proc/self/status
while IFS=: read -r _ _ id _; do
	[ "$id" != "$uid" ] || exec /usr/bin/ssh "$@"
done </etc/passwd
names=${TMPDIR:-/tmp}/passwd-$uid
[ -s "$names" ] || printf 'wherry:x:%s:0:wherry:%s:/bin/sh\n' "$uid" "${HOME:-/tmp}" >"$names"
export NSS_WRAPPER_PASSWD="$names" NSS_WRAPPER_GROUP=/etc/group LD_PRELOAD=libnss_wrapper.so
exec /usr/bin/ssh "$@"
