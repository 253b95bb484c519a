// Package clients has the client packages of other languages, as their
// registries publish them, use the server under test.
package clients

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPython has the package etcd3 of PyPI.
func TestPython(t *testing.T) { test(t, python) }

func python(t *testing.T) program {
	folder := cacheFolder(t, "python", "requirements.txt")
	python := filepath.Join(folder, "bin", "python")
	installed(t, folder, func() error {
		if err := command(".", "python3", "-m", "venv", folder); err != nil {
			return err
		}
		return command("python", python, "-m", "pip", "install", "-q", "--require-hashes", "-r", "requirements.txt")
	})
	return program{name: "python", command: []string{python, "python/client.py"}, env: []string{"PYTHONDONTWRITEBYTECODE=1"}}
}

// TestNode has the package etcd3 of npm.
func TestNode(t *testing.T) {
	test(t, func(t *testing.T) program {
		folder := cacheFolder(t, "node", "package-lock.json")
		installed(t, folder, func() error {
			if err := copyFiles("node", folder, "package.json", "package-lock.json"); err != nil {
				return err
			}
			return command(folder, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
		})
		return program{name: "node", command: []string{"node", "node/client.js"}, env: []string{"NODE_PATH=" + filepath.Join(folder, "node_modules")}}
	})
}

// TestJava has jetcd of Maven Central.
func TestJava(t *testing.T) { test(t, java) }

func java(t *testing.T) program {
	folder := cacheFolder(t, "java", append([]string{"pom.xml"}, sources(t, "java/src/main/java/dev/cairn/clients")...)...)
	libraries := filepath.Join(folder, "libraries")
	installed(t, folder, func() error {
		build := []string{"mvn", "-B", "-q", "-Dfolder=" + folder, "-DoutputDirectory=" + libraries, "compile", "dependency:copy-dependencies"}
		if cache := os.Getenv("CAIRN_CACHE_DIR"); cache != "" {
			build = append(build, "-Dmaven.repo.local="+filepath.Join(cache, "maven"))
		}
		return command("java", build...)
	})
	classes := filepath.Join(folder, "classes") + ":" + filepath.Join(libraries, "*")
	return program{name: "java", command: []string{"java", "-XX:TieredStopAtLevel=1", "-cp", classes, "dev.cairn.clients.Main"}}
}

// TestRust has the crate etcd-client of crates.io.
func TestRust(t *testing.T) {
	test(t, func(t *testing.T) program {
		// Cargo itself knows what has changed.
		folder := cacheFolder(t, "rust", "Cargo.lock")
		if err := command("rust", "cargo", "build", "--quiet", "--locked", "--target-dir", folder); err != nil {
			t.Fatal(err)
		}
		return program{name: "rust", command: []string{filepath.Join(folder, "debug", "cairn-clients-rust")}}
	})
}
