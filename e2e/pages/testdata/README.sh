make() { :; }
