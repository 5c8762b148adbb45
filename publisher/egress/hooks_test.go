package egress

// Connecting has do be called with each address before a connection is made to it.
func (a *Access) Connecting(do func(address string) error) { a.connecting = do }
