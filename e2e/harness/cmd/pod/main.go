// Command pod is the program in the pods of the end-to-end tests, and in their sandboxes: it waits
// for a signal to end. If PORT is set, it answers any request on that port with its environment.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if port := os.Getenv("PORT"); port != "" {
		server := &http.Server{Addr: ":" + port, Handler: http.HandlerFunc(answer), ReadHeaderTimeout: time.Second}
		defer server.Close()
		go func() {
			fmt.Fprintln(os.Stderr, server.ListenAndServe())
			stop()
		}()
	}
	<-ctx.Done()
}

func answer(w http.ResponseWriter, _ *http.Request) {
	for _, v := range os.Environ() {
		fmt.Fprintln(w, v)
	}
}
