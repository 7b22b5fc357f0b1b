// A kubelet of the parts that real ones are made of, with processes of this host for containers.
//
// It serves /exec, /attach, /portForward and /containerLogs over TLS to whoever shows a client
// certificate.  A JSON file says which containers there are:
//
//	{"NAMESPACE/POD": {"CONTAINER": {"command": ["sh", "-c", "..."], "tty": false}}}
//
// A container's command is started with the program; one without a command is there, for commands
// to run in.  What a container prints goes to DIRECTORY/NAMESPACE_POD_CONTAINER/1.log as container
// runtimes write it; 0.log beside it, where there is one, is that of the run before.  It prints
// its address.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	criapi "k8s.io/cri-api/pkg/apis"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
	streams "k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const idle, creation = 4 * time.Hour, constants.DefaultStreamCreationTimeout

type node struct {
	containers map[string]map[string]*container
}

// Whoever follows a log asks for a container's state, and nothing else.
type states struct {
	criapi.RuntimeService
	of *node
}

// find answers 404 as a kubelet does, and nil.
func (n *node) find(w http.ResponseWriter, r *http.Request) *container {
	pod, there := n.containers[r.PathValue("namespace")+"/"+r.PathValue("pod")]
	if !there {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return nil
	}
	name := r.PathValue("container")
	if name == "" {
		return &container{}
	}
	if found := pod[name]; found != nil {
		return found
	}
	http.Error(w, fmt.Sprintf("container %q not found in pod %q", name, r.PathValue("pod")),
		http.StatusNotFound)
	return nil
}

func (n *node) exec(w http.ResponseWriter, r *http.Request) {
	found := n.find(w, r)
	if found == nil {
		return
	}
	options, err := streams.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	streams.ServeExec(w, r, n, r.PathValue("pod"), "", r.PathValue("container"),
		r.URL.Query()["command"], options, idle, creation, constants.SupportedStreamingProtocols)
}

func (n *node) attach(w http.ResponseWriter, r *http.Request) {
	found := n.find(w, r)
	if found == nil {
		return
	}
	options, err := streams.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	streams.ServeAttach(w, r, found, r.PathValue("pod"), "", r.PathValue("container"), options,
		idle, creation, constants.SupportedStreamingProtocols)
}

func (n *node) forward(w http.ResponseWriter, r *http.Request) {
	if n.find(w, r) == nil {
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, n, r.PathValue("pod"), "", options, idle, creation,
		portforward.SupportedProtocols)
}

func (n *node) logs(w http.ResponseWriter, r *http.Request) {
	found := n.find(w, r)
	if found == nil {
		return
	}
	options, err := logOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	path := found.log
	if options.Previous {
		path = filepath.Join(filepath.Dir(found.log), "0.log")
	}
	if _, err := os.Stat(path); err != nil {
		http.Error(w, fmt.Sprintf("previous terminated container %q in pod %q not found",
			r.PathValue("container"), r.PathValue("pod")), http.StatusBadRequest)
		return
	}
	out := &flushed{w}
	told := logs.NewLogOptions(options, time.Now())
	if err := logs.ReadLogs(r.Context(), nil, path, path, told, states{of: n}, out, out); err != nil {
		fmt.Fprintln(os.Stderr, "logs:", err)
	}
}

// logOptions reads what kube-apiserver has validated.
func logOptions(query url.Values) (*v1.PodLogOptions, error) {
	options := &v1.PodLogOptions{
		Follow:     query.Get("follow") == "true",
		Previous:   query.Get("previous") == "true",
		Timestamps: query.Get("timestamps") == "true",
	}
	numbers := map[string]**int64{
		"tailLines": &options.TailLines, "limitBytes": &options.LimitBytes,
		"sinceSeconds": &options.SinceSeconds,
	}
	for name, option := range numbers {
		if !query.Has(name) {
			continue
		}
		number, err := strconv.ParseInt(query.Get(name), 10, 64)
		if err != nil {
			return nil, err
		}
		*option = &number
	}
	if query.Has("sinceTime") {
		since, err := time.Parse(time.RFC3339, query.Get("sinceTime"))
		if err != nil {
			return nil, err
		}
		options.SinceTime = &metav1.Time{Time: since}
	}
	return options, nil
}

type flushed struct{ http.ResponseWriter }

func (f *flushed) Write(data []byte) (int, error) {
	written, err := f.ResponseWriter.Write(data)
	f.ResponseWriter.(http.Flusher).Flush()
	return written, err
}

// ContainerStatus is of the container whose log has this path.
func (n states) ContainerStatus(_ context.Context, id string, _ bool) (*cri.ContainerStatusResponse, error) {
	state := cri.ContainerState_CONTAINER_EXITED
	for _, pod := range n.of.containers {
		for _, one := range pod {
			if one.log == id && one.runs() {
				state = cri.ContainerState_CONTAINER_RUNNING
			}
		}
	}
	return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{State: state}}, nil
}

func (n *node) ExecInContainer(ctx context.Context, _ string, _ types.UID, _ string, command []string,
	in io.Reader, out, problems io.WriteCloser, tty bool, sizes <-chan remotecommand.TerminalSize,
	_ time.Duration) error {
	if len(command) == 0 {
		return errors.New("no command")
	}
	process := exec.Command(command[0], command[1:]...)
	var err error
	if tty {
		err = runInTerminal(process, in, out, sizes)
	} else {
		err = run(process, in, out, problems)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		told := fmt.Errorf("command terminated with exit code %d", exit.ExitCode())
		return utilexec.CodeExitError{Err: told, Code: exit.ExitCode()}
	}
	return err
}

func run(process *exec.Cmd, in io.Reader, out, problems io.WriteCloser) error {
	if out != nil {
		process.Stdout = out
	}
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
	return process.Run()
}

func (n *node) PortForward(_ context.Context, _ string, _ types.UID, port int32,
	stream io.ReadWriteCloser) error {
	defer stream.Close()
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("failed to connect to localhost:%d inside the pod: %w", port, err)
	}
	defer connection.Close()
	go func() {
		io.Copy(connection, stream)
		connection.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, connection)
	return err
}

func must[T any](found T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return found
}

func main() {
	certificate := flag.String("tls-cert-file", "", "what it shows")
	key := flag.String("tls-private-key-file", "", "its key")
	clients := flag.String("client-ca-file", "", "by whom clients are signed")
	pods := flag.String("pods", "", "a JSON file")
	directory := flag.String("logs", "", "where logs are")
	listen := flag.String("listen", "127.0.0.1:0", "where it listens")
	flag.Parse()

	served := &node{}
	if err := json.Unmarshal(must(os.ReadFile(*pods)), &served.containers); err != nil {
		must(0, err)
	}
	known := x509.NewCertPool()
	known.AppendCertsFromPEM(must(os.ReadFile(*clients)))
	for pod, containers := range served.containers {
		for name, one := range containers {
			must(0, one.start(*directory, pod, name))
		}
	}
	routes := http.NewServeMux()
	for _, method := range []string{"GET", "POST"} {
		for path, route := range map[string]http.HandlerFunc{
			"exec": served.exec, "attach": served.attach,
		} {
			routes.HandleFunc(method+" /"+path+"/{namespace}/{pod}/{container}", route)
			routes.HandleFunc(method+" /"+path+"/{namespace}/{pod}/{uid}/{container}", route)
		}
		routes.HandleFunc(method+" /portForward/{namespace}/{pod}", served.forward)
		routes.HandleFunc(method+" /portForward/{namespace}/{pod}/{uid}", served.forward)
	}
	routes.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", served.logs)
	listener := must(net.Listen("tcp", *listen))
	server := &http.Server{Handler: routes, TLSConfig: &tls.Config{
		ClientCAs: known, ClientAuth: tls.RequireAndVerifyClientCert,
	}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ended
		for _, containers := range served.containers {
			for _, one := range containers {
				one.stop()
			}
		}
		os.Exit(0)
	}()
	fmt.Println(listener.Addr().String())
	must(0, server.ServeTLS(listener, *certificate, *key))
}
