# The fleet of the questions in docs/ask.md: a platform with two releases for each of two environments, five agents, and a
# hub that serves. plant-1 runs the second release, plant-2 cannot apply it, plant-3 has not taken it; nobody has heard of
# island since the first one, whose report came by a medium.
set -eu
tries=0
again() { sleep 0.05; tries=$((tries + 1)); test $tries -lt 1000; }
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com

wherry init shop --from empty --registry oci-layout:registry --keys
cd shop
wherry new workload web -e dev -e prod --manifest image=registry.example/web:1.0
wherry new config greeting --label workload=web --data GREETING=hello
git init -q . && git add -A && git commit -qm one
wherry publish -e dev
wherry publish -e prod
cd ..

wherry hub serve --data hub --addr 127.0.0.1:0 >first-url 2>first.log &
echo $! >pid
until test -s first-url; do again; done

agent() { # NAME ENVIRONMENT REGION INTERVAL [HUB]
    cat >$1.yaml <<END
registry: oci-layout:registry
keys: [shop/cosign.pub]
platform: shop
environment: $2
clusterType: edge
adapter: directory
directoryRoot: sites/$1
stateDir: state/$1
hubKey: hub/hub.pub
$5
cluster: {name: $1, uid: uid-$1}
END
    pass $1
    wherry-agent status --state-dir state/$1 -o json >$1.json
    wherry hub clusters add --from $1.json --label region=$3 --expected-interval $4
}
pass() { wherry-agent once --wait 0 --config $1.yaml || true; }

hub="hub: $(cat first-url)"
agent bench dev east 1h "$hub"
agent plant-1 prod east 1h "$hub"
agent plant-2 prod east 1h "$hub"
agent plant-3 prod west 1h "$hub"
agent island prod west 1ms ""
wherry-agent reports export --state-dir state/island -o island.tar
wherry hub import island.tar
wherry get reports island -o name >report
for a in bench plant-1 plant-2 plant-3; do pass $a; done
date -u +%Y-%m-%dT%H:%M:%S.%NZ >then

cd shop
wherry edit config greeting --set 'data.GREETING=good morning'
git commit -qam two
git rev-parse HEAD >../commit
wherry publish -e dev
wherry publish -e prod
cd ..
pass bench
pass plant-1
rm -r sites/plant-2 && touch sites/plant-2
pass plant-2

# A hub looks at what is published when it starts.
kill $(cat pid)
wait $(cat pid) || true
wherry hub serve --data hub --addr 127.0.0.1:0 --watch oci-layout:registry --trust-key shop/cosign.pub >url 2>hub.log &
echo $! >pid
until test -s url; do again; done
until test "$(wherry get environments -o json | grep -c '"record"')" = 2; do again; done
