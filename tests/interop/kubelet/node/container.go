package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/cri-client/pkg/logs"
)

// A container: one process of this host, or none, in which commands may run all the same.
type container struct {
	Command []string `json:"command"`
	TTY     bool     `json:"tty"`

	log     string
	process *exec.Cmd
	in      io.Writer
	over    chan struct{}

	mutex    sync.Mutex
	attached map[io.Writer]struct{}
}

func (c *container) runs() bool {
	select {
	case <-c.over:
		return false
	default:
		return true
	}
}

func (c *container) start(directory, pod, name string) error {
	c.over, c.attached = make(chan struct{}), map[io.Writer]struct{}{}
	where := filepath.Join(directory, strings.ReplaceAll(pod, "/", "_")+"_"+name)
	c.log = filepath.Join(where, "1.log")
	if err := os.MkdirAll(where, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil || len(c.Command) == 0 {
		return err
	}
	c.process = exec.Command(c.Command[0], c.Command[1:]...)
	lines, printed := io.Pipe()
	go c.record(lines, log)
	shown := io.MultiWriter(printed, c)
	if c.TTY {
		typed, keys := io.Pipe()
		c.in = keys
		go func() {
			runInTerminal(c.process, typed, shown, nil)
			printed.Close()
			close(c.over)
		}()
		return nil
	}
	if c.in, err = c.process.StdinPipe(); err != nil {
		return err
	}
	c.process.Stdout, c.process.Stderr = shown, shown
	if err := c.process.Start(); err != nil {
		return err
	}
	go func() { c.process.Wait(); printed.Close(); close(c.over) }()
	return nil
}

func (c *container) stop() {
	if c.process != nil && c.process.Process != nil {
		syscall.Kill(c.process.Process.Pid, syscall.SIGKILL)
	}
}

// record writes lines as container runtimes do.
func (c *container) record(lines io.Reader, log io.WriteCloser) {
	defer log.Close()
	read := bufio.NewScanner(lines)
	for read.Scan() {
		now := time.Now().UTC().Format(logs.RFC3339NanoFixed)
		fmt.Fprintf(log, "%s stdout F %s\n", now, read.Text())
	}
}

// Write shows what is printed to all who are attached.
func (c *container) Write(data []byte) (int, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for one := range c.attached {
		if _, err := one.Write(data); err != nil {
			delete(c.attached, one)
		}
	}
	return len(data), nil
}

func (c *container) AttachContainer(ctx context.Context, _ string, _ types.UID, _ string, in io.Reader,
	out, _ io.WriteCloser, _ bool, sizes <-chan remotecommand.TerminalSize) error {
	if c.process == nil {
		return fmt.Errorf("nothing runs here")
	}
	go func() {
		for range sizes {
		}
	}()
	if out != nil {
		c.mutex.Lock()
		c.attached[out] = struct{}{}
		c.mutex.Unlock()
		defer func() {
			c.mutex.Lock()
			delete(c.attached, out)
			c.mutex.Unlock()
		}()
	}
	if in != nil {
		go io.Copy(c.in, in)
	}
	select {
	case <-c.over:
	case <-ctx.Done():
	}
	return nil
}
