package gittest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// ServeSSH serves a repository over ssh until the test ends, to whoever has a key and asks for multi_ack or multi_ack_detailed, as
// Azure DevOps and CodeCommit do. It returns the URL, and the server's line for known_hosts.
func ServeSSH(t *testing.T, repo string) (url, known string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	host, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
	config.AddHostKey(host)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveSSH(conn, config, repo)
		}
	}()
	address := listener.Addr().String()
	return "ssh://git@" + address + "/platform", knownhosts.Line([]string{knownhosts.Normalize(address)}, host.PublicKey())
}

func serveSSH(conn net.Conn, config *ssh.ServerConfig, repo string) {
	defer func() { _ = conn.Close() }()
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return // a client that does not trust the server, or has no key
	}
	go ssh.DiscardRequests(requests)
	for asked := range channels {
		channel, requests, err := asked.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range requests {
				_ = r.Reply(r.Type == "exec", nil)
				if r.Type != "exec" {
					continue
				}
				code := byte(0)
				if err := uploadPack(channel, repo); err != nil {
					fmt.Fprintln(channel.Stderr(), err)
					code = 1
				}
				_, _ = channel.SendRequest("exit-status", false, []byte{0, 0, 0, code})
				_ = channel.Close()
			}
		}()
	}
}

// uploadPack is the git program's side of a fetch. Requests without multi_ack end it.
func uploadPack(client io.ReadWriter, repo string) error {
	cmd := exec.Command("git", "-c", "safe.directory=*", "upload-pack", repo)
	cmd.Stdout = client
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = passOn(stdin, client)
	_ = stdin.Close()
	_ = cmd.Wait() // of a client that goes without a request, too
	return err
}

// passOn copies a request, whose first line has what the client is capable of.
func passOn(to io.Writer, from io.Reader) error {
	length := make([]byte, 4)
	if _, err := io.ReadFull(from, length); err != nil {
		return nil // nothing is asked for
	}
	n, err := strconv.ParseUint(string(length), 16, 16)
	if err != nil {
		return err
	}
	first := make([]byte, max(n, 4)-4) // 0000 ends a request without a line
	if _, err := io.ReadFull(from, first); err != nil {
		return err
	}
	if n > 0 && !bytes.Contains(first, []byte("multi_ack")) {
		return fmt.Errorf("the request needs multi_ack")
	}
	if _, err := to.Write(append(length, first...)); err != nil || n == 0 {
		return err
	}
	_, _ = io.Copy(to, from) // git ends once it has sent what is asked for
	return nil
}
