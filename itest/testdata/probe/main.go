// Command probe requests a URL four times a second and prints the outcome. TestCluster uses it to
// check the cluster's faults.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	client := &http.Client{Timeout: time.Second}
	for range time.Tick(250 * time.Millisecond) {
		resp, err := client.Get(os.Getenv("URL"))
		if err != nil {
			fmt.Println("error")
			continue
		}
		resp.Body.Close()
		fmt.Println("ok", resp.StatusCode)
	}
}
