cd fleet
wherry publish -e dev
wherry airgap export -e dev --artifacts none -o "$W/media/site.tar"
