#!/bin/sh
# A check for "wherry publish --check": no image without a version, and no pod that is as good as its host.
# It runs in the folder with what would be released, and says what it minds.
status=0

if grep -E '"type":"image".*"reference":"[^"]*:latest"' artifacts.ndjson; then
	echo 'these images are another one tomorrow: name a version or a digest'
	status=1
fi
if grep -rnE '^[ -]*(privileged|hostNetwork|hostPID|hostIPC): *true' tree; then
	echo 'these pods can do what their host can'
	status=1
fi
exit $status
