cd fleet
