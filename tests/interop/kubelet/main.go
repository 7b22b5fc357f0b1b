// The streaming server that kubelets and CRI runtimes are made of, with commands of this
// host for containers.  It prints its address; GET /url?cmd=...&stdin=true&tty=true
// answers an exec URL, good for one request, as the CRI's Exec does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/cri/streaming"
	utilexec "k8s.io/utils/exec"
)

type host struct{}

func (host) Exec(_ context.Context, _ string, command []string, in io.Reader, out, problems io.WriteCloser,
	_ bool, sizes <-chan remotecommand.TerminalSize) error {
	go func() {
		for size := range sizes {
			fmt.Fprintf(out, "[%dx%d]\r\n", size.Width, size.Height)
		}
	}()
	process := exec.Command(command[0], command[1:]...)
	process.Stdout, process.Stderr = out, out
	if problems != nil {
		process.Stderr = problems
	}
	if in != nil {
		typed, err := process.StdinPipe()
		if err != nil {
			return err
		}
		go func() { io.Copy(typed, in); typed.Close() }()
	}
	err := process.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		told := fmt.Errorf("command terminated with exit code %d", exit.ExitCode())
		return utilexec.CodeExitError{Err: told, Code: exit.ExitCode()}
	}
	return err
}

func (host) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool,
	<-chan remotecommand.TerminalSize) error {
	return errors.New("nothing runs here")
}

func (host) PortForward(context.Context, string, int32, io.ReadWriteCloser) error {
	return errors.New("nothing listens here")
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	config := streaming.DefaultConfig
	config.Addr = listener.Addr().String()
	config.BaseURL = &url.URL{Scheme: "http", Host: config.Addr}
	server, err := streaming.NewServer(config, host{})
	if err != nil {
		panic(err)
	}
	routes := http.NewServeMux()
	routes.Handle("/", server)
	routes.HandleFunc("/url", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		answer, err := server.GetExec(&cri.ExecRequest{
			ContainerId: "c",
			Cmd:         strings.Split(query.Get("cmd"), " "),
			Stdin:       query.Get("stdin") == "true",
			Stdout:      true,
			Stderr:      query.Get("tty") != "true",
			Tty:         query.Get("tty") == "true",
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, answer.Url)
	})
	fmt.Println(config.Addr)
	os.Stdout.Sync()
	panic(http.Serve(listener, routes))
}
