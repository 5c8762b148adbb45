export ALERTS="- name: power
  after: 5m
- name: link
  after: 1h
"
export API_HOST="api.prod.example.com"
export API_URL="https://api.prod.example.com/drum"
export COMPANY="Bean & Leaf"
export CURRENCY="EUR"
export LOG_LEVEL="warn"
export LOYALTY="false"
