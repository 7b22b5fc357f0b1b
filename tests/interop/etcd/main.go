// etcd itself, of the release that go.mod names: a program of its own needs no fork of it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
