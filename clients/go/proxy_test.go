package runekeep_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// Stands before a server and breaks its connections.
type proxy struct {
	address string
	mutex   sync.Mutex
	marker  []byte
	open    []net.Conn
	total   int
}

func startProxy(t *testing.T, server string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: listener.Addr().String()}
	t.Cleanup(func() { listener.Close(); p.cut() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			p.mutex.Lock()
			p.open, p.total = append(p.open, near, far), p.total+1
			p.mutex.Unlock()
			cut := make(chan struct{})
			go p.forward(near, far, cut)
			go answer(far, near, cut)
		}
	}()
	return p
}

// Passes the next request with the marker on, but not its answer: the connection breaks when the server answers.
func (p *proxy) cutAfter(marker string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.marker = []byte(marker)
}

// Breaks all connections.
func (p *proxy) cut() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, one := range p.open {
		one.Close()
	}
	p.open = nil
}

func (p *proxy) connections() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.total
}

func (p *proxy) isMarked(data []byte) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	found := p.marker != nil && bytes.Contains(data, p.marker)
	if found {
		p.marker = nil
	}
	return found
}

func (p *proxy) forward(from, to net.Conn, cut chan struct{}) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if p.isMarked(buffer[:n]) {
			close(cut)
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func answer(from, to net.Conn, cut chan struct{}) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		select {
		case <-cut:
			return
		default:
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
