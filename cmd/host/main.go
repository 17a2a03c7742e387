// Command carrel is the Carrel host and its command line.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], processEnv())) }
