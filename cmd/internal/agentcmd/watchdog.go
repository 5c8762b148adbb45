package agentcmd

import (
	"net"
	"strconv"
	"time"

	"github.com/wherry-dev/wherry/agent/metrics"
)

// ready returns a function that tells systemd that the agent answers, or nil if nobody waits for that. See sd_notify(3).
func ready(environ func(string) string) func() error {
	socket := environ("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	return func() error { return notify(socket, "READY=1") }
}

// watchdog returns systemd's watchdog, or nil if the unit has no WatchdogSec. See sd_notify(3) and
// sd_watchdog_enabled(3).
func watchdog(environ func(string) string, pid int) *metrics.Watchdog {
	socket := environ("NOTIFY_SOCKET")
	micros, err := strconv.ParseInt(environ("WATCHDOG_USEC"), 10, 64)
	if other := environ("WATCHDOG_PID"); socket == "" || err != nil || micros <= 0 || other != "" && other != strconv.Itoa(pid) {
		return nil
	}
	return &metrics.Watchdog{
		Every: max(time.Duration(micros)*time.Microsecond/3, time.Millisecond),
		Tell:  func() error { return notify(socket, "WATCHDOG=1") },
	}
}

func notify(socket, state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
