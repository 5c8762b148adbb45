package oci

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIs(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "localhost:5000": true, "127.0.0.1": true, "127.9.9.9:80": true,
		"::1": true, "[::1]": true, "[::1]:443": true, "::ffff:127.0.0.1": true,
		"": false, ":8080": false, "0.0.0.0": false, "192.0.2.7": false, "localhost.evil.example": false,
		"127.0.0.1.evil.example": false, "registry.plant-7:5000": false, "[::]:80": false, "::1%lo": true,
	} {
		require.Equal(t, want, IsLoopback(host), host)
	}
}
