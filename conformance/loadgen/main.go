// Command loadgen is the closed-loop load generator for what h2load cannot send: puts to many different keys. It also
// measures what the machine itself costs, as the base of the one-client figures.
//
// It stays lean so that it does not take the processor from the server under test: one thread, one epoll loop, no
// goroutine and no allocation per request, HTTP/2 frames written by hand.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	var (
		result any
		err    error
	)
	switch arguments := os.Args[2:]; os.Args[1] {
	case "put", "get":
		result, err = runLoad(os.Args[1], arguments)
	case "base":
		result, err = runBase(arguments)
	case "echo":
		err = runEcho(arguments)
	case "write":
		err = runWriter(arguments)
	default:
		usage()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
	if result != nil {
		_ = json.NewEncoder(os.Stdout).Encode(result)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: loadgen put|get|base [flags]   (loadgen put -h lists them)")
	os.Exit(2)
}
