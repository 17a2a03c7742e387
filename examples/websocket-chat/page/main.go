// Command page serves a chat page for browsers. It is a backend as an
// application has one: it keeps the API key to itself and gives each page a
// ticket, which opens one WebSocket within half a minute.
package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/carrelhost/carrel/client"
)

//go:embed index.html
var page []byte

func main() {
	listen := flag.String("listen", "127.0.0.1:8090", "address:port of the page")
	flag.Parse()
	c := &client.Client{Base: os.Getenv("CARREL_HOST"), Key: os.Getenv("CARREL_KEY")}
	server := &http.Server{Addr: *listen, Handler: handler(c), ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("the page is at http://%s\n", *listen)
	fmt.Fprintln(os.Stderr, "page:", server.ListenAndServe())
	os.Exit(1)
}

// handler serves the page and its tickets.
func handler(c *client.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page) // a browser that is gone needs no page
	})
	mux.HandleFunc("POST /ticket", func(w http.ResponseWriter, r *http.Request) {
		// The ticket is good for this page's own origin only.
		t, err := c.NewTicket(r.Context(), client.NewTicket{Origin: "http://" + r.Host})
		if down, ok := errors.AsType[*url.Error](err); ok {
			http.Error(w, fmt.Sprintf("no host answers at %s (%v): is it running, and is CARREL_HOST its address?", c.Base, down.Err), http.StatusBadGateway)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{ // as above
			"url": "ws" + strings.TrimPrefix(strings.TrimSuffix(c.Base, "/"), "http") + "/api/v1/ws?ticket=" + t.Ticket,
		})
	})
	return mux
}
