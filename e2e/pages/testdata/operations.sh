(cd fleet && wherry publish -e dev)
wherry-agent once
(cd fleet && wherry new config greeting --data GREETING=hello && wherry publish -e dev)
wherry-agent once
