// Command lookup is the demo's stand-in for a citation service: it answers GET /works?key=KEY&year=YEAR with "found"
// or "unknown".
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
)

var works = map[string]string{
	"lamport1978time": "1978", "merkle1987digital": "1987", "saltzer1975protection": "1975", "thompson1984trust": "1984",
	"king2003backtracking": "2003", "shannon1948communication": "1948", "diffie1976new": "1976", "laurie2014certificate": "2014",
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	// The first line tells whoever started it where it listens.
	fmt.Println(l.Addr())
	os.Stdout.Close()
	log.Fatal(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/works" || q.Get("key") == "" {
			http.Error(w, "usage: /works?key=KEY&year=YEAR", http.StatusBadRequest)
			return
		}
		if year, ok := works[q.Get("key")]; ok && year == q.Get("year") {
			fmt.Fprintln(w, "found")
			return
		}
		fmt.Fprintln(w, "unknown")
	})))
}
