package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The two ends of a link. The addresses are set aside for measuring networks by RFC 2544: no host has them, and
// they are neither loopback nor private, which programs treat in ways of their own.
var (
	nearAddress = netip.MustParseAddr("198.18.0.1")
	farAddress  = netip.MustParseAddr("198.18.0.2")
	linkMask    = netip.MustParseAddr("255.255.255.252")
)

// loopback is a namespace's own, by which its programs reach each other.
const loopback = "lo"

// linkQueue bounds the time for which packets wait for earlier ones, as in the modem of a slow link.
const linkQueue = 2 * time.Second

// linkMTU is that of Ethernet, the largest packet of a link in bytes.
const linkMTU = 1500

// Weather is what a link does to packets, in both directions alike.
type Weather struct {
	// Delay is the travel time of a packet, half of a round trip.
	Delay time.Duration
	// Loss is the part of the packets that do not arrive, from 0 to 1.
	Loss float64
	// Rate is how many bytes of packets go in each direction in a second; more wait for linkQueue, and are lost then.
	// Zero is no bound.
	Rate int64
}

// Link joins two network namespaces, which have nothing else but it. What the kernel's qdisc netem does, a
// goroutine does here with packets of TUN devices, since not every kernel has netem; TCP is the kernel's own at
// both ends. Namespaces and devices have no name on the machine, and go with this process however it ends.
type Link struct {
	Near, Far *Namespace

	running sync.WaitGroup
	done    chan struct{}

	mu      sync.Mutex
	weather Weather
	arrived Arrived
	lost    int
	cuts    int
	random  *rand.Rand // the same packets are lost in each run, as far as the same ones are sent
}

// Arrived is how many packets have come through a link, and how many bytes they had, headers of IP included. Up is
// from Near to Far.
type Arrived struct {
	Packets, Up, Down int64
}

// NewLink makes a link whose weather is good. It takes root and /dev/net/tun. The caller calls Close.
func NewLink() (*Link, error) {
	l := &Link{done: make(chan struct{}), random: rand.New(rand.NewPCG(1, 2))}
	var err error
	if l.Near, err = newNamespace(nearAddress); err != nil {
		return nil, err
	}
	if l.Far, err = newNamespace(farAddress); err != nil {
		return nil, errors.Join(err, l.Near.close())
	}
	l.running.Go(func() { l.carry(l.Near, l.Far, &l.arrived.Up) })
	l.running.Go(func() { l.carry(l.Far, l.Near, &l.arrived.Down) })
	return l, nil
}

// Set changes the weather for packets that are sent from now on.
func (l *Link) Set(w Weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather = w
}

// Arrived is what has come through so far.
func (l *Link) Arrived() Arrived {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrived
}

// Lost returns the number of packets that the weather has dropped.
func (l *Link) Lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Up connects the near end or, as "ip link set down" does, takes it away: programs there have no route then, and what
// is under way is lost.
func (l *Link) Up(up bool) error {
	l.mu.Lock()
	l.cuts++
	l.mu.Unlock()
	return l.Near.do(func() error { return setUp(l.Near.name, up) })
}

// Close takes the link away. Programs that were started in a namespace have to have ended.
func (l *Link) Close() error {
	close(l.done)
	err := errors.Join(l.Near.close(), l.Far.close())
	l.running.Wait()
	return err
}

// packet is one that is under way until it is due.
type packet struct {
	data []byte
	due  time.Time
	cuts int // of the link when it was sent
}

// carry takes packets from one end to the other until the link is closed.
func (l *Link) carry(from, to *Namespace, arrived *int64) {
	underway := make(chan packet, 1<<12) // while it is full, the sender's device drops what does not fit into its own queue
	l.running.Go(func() { l.deliver(underway, to, arrived) })
	defer close(underway)
	var free time.Time // when all earlier packets are sent
	for {
		data := make([]byte, linkMTU)
		n, err := from.device.Read(data)
		if err != nil {
			return
		}
		if data[0]>>4 != 4 { // the kernel also looks for neighbours that speak IPv6
			continue
		}
		if now := time.Now(); free.Before(now) {
			free = now
		}
		if p, arrives := l.meet(data[:n], &free); arrives {
			underway <- p
		}
	}
}

// meet decides whether a packet, sent when the link is free, arrives and when. It moves free to the end of the packet.
func (l *Link) meet(data []byte, free *time.Time) (p packet, arrives bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Until(*free) > linkQueue || l.random.Float64() < l.weather.Loss {
		l.lost++
		return p, false
	}
	if l.weather.Rate > 0 {
		*free = free.Add(time.Duration(len(data)) * time.Second / time.Duration(l.weather.Rate))
	}
	return packet{data, free.Add(l.weather.Delay), l.cuts}, true
}

func (l *Link) deliver(underway <-chan packet, to *Namespace, arrived *int64) {
	for p := range underway {
		select {
		case <-time.After(time.Until(p.due)):
		case <-l.done:
			continue
		}
		l.mu.Lock()
		if p.cuts == l.cuts {
			if n, err := to.device.Write(p.data); err == nil { // else that end is down
				*arrived += int64(n)
				l.arrived.Packets++
			}
		}
		l.mu.Unlock()
	}
}

// Namespace is one end of a link.
type Namespace struct {
	// Address is its own.
	Address netip.Addr

	device *os.File
	name   string
	work   chan func() // is done by the one thread that is in the namespace
}

func newNamespace(address netip.Addr) (*Namespace, error) {
	n := &Namespace{Address: address, work: make(chan func())}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine, and the namespace with it
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- fmt.Errorf("network namespace: %w", err)
			return
		}
		err := n.addDevice()
		failed <- err
		if err != nil {
			return
		}
		for do := range n.work {
			do()
		}
	}()
	return n, <-failed
}

// addDevice makes the TUN device that is this end of the link, beside loopback.
func (n *Namespace) addDevice() error {
	const path = "/dev/net/tun"
	if err := setUp(loopback, true); err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	request, err := unix.NewIfreq("wire0")
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("%s: %w", path, err)
	}
	n.name = request.Name()
	n.device = os.NewFile(uintptr(fd), path)
	for _, set := range []struct {
		what  uint
		value netip.Addr
	}{{unix.SIOCSIFADDR, n.Address}, {unix.SIOCSIFNETMASK, linkMask}} {
		err = errors.Join(err, configure(n.name, set.what, func(r *unix.Ifreq) error { return r.SetInet4Addr(set.value.AsSlice()) }))
	}
	if err = errors.Join(err, setUp(n.name, true)); err != nil {
		return errors.Join(err, n.device.Close())
	}
	return nil
}

// configure makes one change to a device. The thread has to be in its namespace.
func configure(device string, what uint, change func(*unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	if err := change(request); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, what, request); err != nil {
		return fmt.Errorf("network device %s: %w", device, err)
	}
	return nil
}

func setUp(device string, up bool) error {
	return configure(device, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error {
		if up {
			r.SetUint16(unix.IFF_UP)
		}
		return nil
	})
}

// do runs f in the namespace.
func (n *Namespace) do(f func() error) error {
	failed := make(chan error)
	n.work <- func() { failed <- f() }
	return <-failed
}

// Listen listens on a free port of the namespace, for programs at the other end.
func (n *Namespace) Listen() (l net.Listener, err error) {
	err = n.do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(n.Address, 0).String())
		return err
	})
	return l, err
}

// Dial connects to a program in the namespace, or at the other end, by its IP address.
func (n *Namespace) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Start starts a program in the namespace.
func (n *Namespace) Start(cmd *exec.Cmd) error { return n.do(cmd.Start) }

func (n *Namespace) close() error {
	close(n.work)
	return n.device.Close()
}
