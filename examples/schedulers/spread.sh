#!/bin/sh
# A scheduler of one's own. Where the policies put a deployment target on several cluster types, it keeps
# the one that has the fewest targets so far:
#
#   wherry schedule PLATFORM --environment dev -o json | sh spread.sh > decision.json
#   wherry publish PLATFORM --environment dev --assignments decision.json …
set -eu
awk -F '"' '
$2 == "environment" { environment = $4 }
$2 == "clusterType" { type = $4 }
$2 == "name" && type != "" { # the first name after a cluster type is the target, others are policies
	if (!($4 in types)) order[++n] = $4
	types[$4] = types[$4] " " type
	type = ""
}
END {
	printf "{\"schema\": 1, \"environment\": \"%s\", \"assignments\": [", environment
	for (i = 1; i <= n; i++) {
		k = split(types[order[i]], candidates, " ")
		best = candidates[1]
		for (j = 2; j <= k; j++) if (count[candidates[j]] < count[best]) best = candidates[j]
		count[best]++
		printf "%s\n{\"clusterType\": \"%s\", \"name\": \"%s\", \"policies\": [{\"name\": \"spread\"}]}", (i > 1 ? "," : ""), best, order[i]
	}
	print "\n]}"
}' "$@"
