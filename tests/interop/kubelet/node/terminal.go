package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/remotecommand"
)

// openTerminal gives both ends of a new pseudo terminal.
func openTerminal() (ours, theirs *os.File, err error) {
	if ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		ours.Close()
	}
	return ours, theirs, err
}

// runInTerminal runs a process in a terminal of its own, to its end.
func runInTerminal(process *exec.Cmd, in io.Reader, out io.Writer,
	sizes <-chan remotecommand.TerminalSize) error {
	ours, theirs, err := openTerminal()
	if err != nil {
		return err
	}
	defer ours.Close()
	process.Stdin, process.Stdout, process.Stderr = theirs, theirs, theirs
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	go func() {
		for size := range sizes {
			told := unix.Winsize{Row: size.Height, Col: size.Width}
			unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &told)
		}
	}()
	err = process.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	if in != nil {
		go io.Copy(ours, in)
	}
	if out != nil {
		// It ends with an error when no process holds the other end any more.
		io.Copy(out, ours)
	}
	return process.Wait()
}
