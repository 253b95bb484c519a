// Command storage runs the tests of k8s.io/apiserver's storage against a server
// binary. They are built from the sources as they are published; the shim in
// this module takes the place of the server that they would embed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is the one whose packages are tested.
const module = "k8s.io/apiserver/pkg/"

// packages are those with tests that start a server.
var packages = []string{
	"storage/etcd3", "storage/etcd3/preflight", "storage/cacher", "storage/storagebackend/factory",
	"registry/generic/registry", "reconcilers", "util/peerproxy",
}

func main() {
	log.SetFlags(0)
	server := flag.String("server", "", "server binary; the genuine etcd if empty")
	only := flag.String("run", "", "only the tests that match, as `go test -run`")
	size := flag.Bool("size", false, "measure what the watch caches of many pods cost (folder size; its flags follow after --)")
	chosen := flag.String("packages", strings.Join(packages, ","), "packages below "+module)
	log.SetPrefix("storage: ")
	flag.Parse()
	folder, err := os.MkdirTemp("", "cairn-storage-")
	if err != nil {
		log.Fatal(err)
	}
	err = provide(folder, *server)
	switch {
	case err != nil:
	case *size:
		err = measure(folder, *server, flag.Args())
	default:
		err = test(folder, *only, strings.Split(*chosen, ","))
	}
	os.RemoveAll(folder)
	if err != nil {
		log.Fatal(err)
	}
}

// provide puts the server into the folder under etcd's name, by which Cairn
// takes etcd's flags. An empty path is the genuine server's.
func provide(folder, server string) error {
	binary := filepath.Join(folder, "etcd")
	if server == "" {
		build := exec.Command("go", "build", "-o", binary, "./etcd")
		build.Dir = filepath.Join("..", "..")
		if output, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build the genuine server: %w\n%s", err, output)
		}
		return nil
	}
	path, err := filepath.Abs(server)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("no binary to test: %w", err)
	}
	return os.Symlink(path, binary)
}

// growthMax is by how many MiB the anonymous memory of our server may grow
// while watch caches are filled.
const growthMax = 64

// measure runs the program in `size` with the server of the folder. The genuine
// server has no limit: it is there to compare with.
func measure(folder, server string, arguments []string) error {
	if server != "" {
		arguments = append([]string{fmt.Sprint("-growth-max=", growthMax)}, arguments...)
	}
	program := filepath.Join(folder, "size")
	if output, err := exec.Command("go", "build", "-o", program, "./size").CombinedOutput(); err != nil {
		return fmt.Errorf("build it: %w\n%s", err, output)
	}
	run := command(folder, program, arguments...)
	run.Stdout = os.Stdout
	return run.Run()
}

// command is a program that starts the server of the folder.
func command(folder, name string, arguments ...string) *exec.Cmd {
	c := exec.Command(name, arguments...)
	c.Env = append(os.Environ(), "ETCD_BINARY="+filepath.Join(folder, "etcd"))
	c.Stderr = os.Stderr
	return c
}

// test runs the tests and judges their results.
func test(folder, only string, chosen []string) error {
	expected, err := readExpected("expected.txt")
	if err != nil {
		return err
	}
	arguments := []string{"test", "-json", "-count=1", "-p=1", "-timeout=40m"}
	if only != "" {
		arguments = append(arguments, "-run="+only)
	}
	for _, name := range chosen {
		arguments = append(arguments, module+name)
	}
	tests := command(folder, "go", arguments...)
	output, err := tests.StdoutPipe()
	if err != nil {
		return err
	}
	if err := tests.Start(); err != nil {
		return err
	}
	results, err := readResults(output)
	if err != nil {
		return err
	}
	// Its exit code says what the results say.
	var exit *exec.ExitError
	if err := tests.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return results.judge(expected, only == "" && slices.Equal(chosen, packages))
}
