package testserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// StartNginx starts nginx as a proxy in front of the server at the URL upstream for one test, and
// returns its URL. directives stand in its location, such as "proxy_set_header Accept-Encoding
// gzip;". Debian's package is nginx-light. Where nginx is not installed, the test is [Missing] an
// nginx.
func StartNginx(tb testing.TB, upstream, directives string) (url string) {
	tb.Helper()
	SkipIfShort(tb)
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program = "/usr/sbin/nginx"; !exists(program) { // which is not in everybody's PATH
			Missing(tb, "nginx", fmt.Errorf("it needs nginx, which apt-get install nginx-light installs: %w", err))
		}
	}
	addr, err := freeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; master_process off; pid nginx.pid; error_log error.log;
events {}
http {
	access_log off; client_max_body_size 0;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	server {
		listen %s;
		location / {
			proxy_pass %s; proxy_http_version 1.1; proxy_set_header Host $http_host;
			%s
		}
	}
}
`, addr, upstream, directives)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	run(tb, exec.Command(program, "-p", dir, "-c", config, "-e", filepath.Join(dir, "error.log")))
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return "http://" + addr
		}
		if time.Since(began) > 10*time.Second {
			log, _ := os.ReadFile(filepath.Join(dir, "error.log"))
			tb.Fatalf("testserver: nginx does not listen: %v\n%s", err, log)
		}
	}
}
