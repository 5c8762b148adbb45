//go:build !unix

package simulation

func maxFiles() int64 { return 0 }

func cpuSeconds() float64 { return 0 }
