# The fleet of docs/disaster-recovery.md, and what its blocks take for granted: stop_hub, start_hub, empty_registry and report.
tries=0
again() { sleep 0.05; tries=$((tries + 1)); test $tries -lt 1000; }
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com COSIGN_PASSWORD=secret

wherry registry serve store --addr 127.0.0.1:0 >registry-url &
registry=$!
until test -s registry-url; do again; done
export WHERRY_REGISTRY="$(cat registry-url)/edge"
address=${WHERRY_REGISTRY#oci://}
address=${address%/edge}
empty_registry() {
    was=$(date +%s)
    until test $(date +%s) -gt $was; do again; done # sequences follow the clock, in whole seconds
    kill $registry
    wait $registry || true
    rm -r store
    : >registry-url
    wherry registry serve store --addr $address >registry-url &
    registry=$!
    until test -s registry-url; do again; done
}

for key in release anna ben carl; do wherry keys generate -o $key; done
wherry trust init --platform shop --root-key anna.pub --root-key ben.pub --root-key carl.pub --root-threshold 2 --release-key release.pub \
    --key anna.key --key ben.key -o trust.v1.json
wherry trust publish trust.v1.json
export WHERRY_TRUST=$PWD/trust.v1.json WHERRY_SIGN_WITH=$PWD/release.key

wherry init platform --from empty
cd platform
sed -i 's/^  name: .*/  name: shop/' platform.yaml 2>/dev/null || true
wherry new workload web -e prod --manifest image=registry.example/web:1.0
git init -q .
git add -A
git commit -qm one
wherry publish -e prod
cd ..

hub_address=127.0.0.1:0
start_hub() {
    : >hub-url
    wherry hub serve --addr $hub_address >hub-url 2>>hub.log &
    hub=$!
    until test -s hub-url; do again; done
    hub_address=$(sed 's|http://||' hub-url)
}
stop_hub() {
    kill $hub
    wait $hub || true
}
start_hub

# report makes a pass at each site, which has to end compliant, and wants the hub to know that of the release that runs there.
report() {
    for site in "$@"; do
        wherry-agent once --config $site.yaml >$site.status || { cat $site.status; return 1; }
        release=$(sed -n 's/^running .*(\([0-9a-f]*\)).*/\1/p' $site.status)
        wherry get clusters $site --state compliant --release $release -o name | grep -q . || { echo "the hub does not know that $site runs $release"; return 1; }
    done
}
for site in plant-1 plant-2; do
    cat >$site.yaml <<END
registry: $WHERRY_REGISTRY
trust: trust.v1.json
platform: shop
environment: prod
clusterType: edge
adapter: directory
directoryRoot: sites/$site
stateDir: state/$site
hub: $(cat hub-url)
hubKey: hub/hub.pub
cluster: {name: $site, uid: uid-$site}
END
    wherry-agent once --wait 0 --config $site.yaml
    wherry-agent status --config $site.yaml -o json | wherry hub clusters add --from -
done
report plant-1 plant-2
