sed -i '/^keys\|^signWith/d' fleet/wherry.yaml
cd fleet
wherry rm cluster-type edge -e dev
