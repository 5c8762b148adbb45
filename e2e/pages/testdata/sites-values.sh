cd fleet
wherry new site-values drone --key gateway.address --site-may-set gateway.address
wherry edit cluster-type drone -e dev --set 'metadata.annotations["wherry.dev/site-values"]=drone'
wherry publish -e dev
wherry-agent once
wherry new cluster-type factory -e dev --label type=edge
wherry new cluster plant-7 -e dev --cluster-type factory --uid 7d0c2f0e-5f0b-4c7c-9a3e-0d6a0f6d2b11
echo 'gateway.address: 10.7.0.2' >site.yaml
