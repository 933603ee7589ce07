package runekeep

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // For servers that say that they do not serve; see service-config.json.
)

const (
	defaultAddress  = "127.0.0.1:7433"
	maxReceiveBytes = 64 << 20
	// A request that is larger than this is not repeated. gRPC by default repeats only those below 256 KiB.
	maxRetryBytes = 16 << 20
)

// Which calls are repeated, and how often. `make reference` writes the file, from the contract.
//
//go:embed service-config.json
var serviceConfig []byte

func (o Options) withEnvironment() Options {
	for _, one := range []struct {
		value *string
		name  string
	}{
		{&o.Account, "RUNEKEEP_ACCOUNT"},
		{&o.User, "RUNEKEEP_USER"},
		{&o.APIKey, "RUNEKEEP_API_KEY"},
		{&o.CAFile, "RUNEKEEP_CA_FILE"},
		{&o.CertFile, "RUNEKEEP_CERT_FILE"},
		{&o.KeyFile, "RUNEKEEP_KEY_FILE"},
	} {
		*one.value = cmp.Or(*one.value, os.Getenv(one.name))
	}
	return o
}

// Returns the target of the connection and its options.
func transport(address string, options Options) (string, []grpc.DialOption, error) {
	address = cmp.Or(address, os.Getenv("RUNEKEEP_ADDRESS"), defaultAddress)
	target, https := strings.CutPrefix(strings.TrimSuffix(address, "/"), "https://")
	secure := https || options.CAFile != ""
	host, port, err := net.SplitHostPort(strings.TrimPrefix(target, "dns:///"))
	if https && err != nil {
		host, port, target, err = target, "443", net.JoinHostPort(strings.Trim(target, "[]"), "443"), nil
	}
	if err != nil || host == "" || port == "" || strings.ContainsAny(host, "/@?# ") {
		return "", nil, fmt.Errorf("%q is no address: write host:port, https://host:port or dns:///host:port", address)
	}
	if options.APIKey != "" && !secure && !isLoopback(host) {
		return "", nil, fmt.Errorf("the key would go to %s in plain text: set CAFile, or write https://%s", target, target)
	}
	if (options.CertFile == "") != (options.KeyFile == "") {
		return "", nil, errors.New("a certificate and its key go together: set both CertFile and KeyFile")
	}
	if options.CertFile != "" && !secure {
		return "", nil, fmt.Errorf("a client certificate needs TLS: set CAFile, or write https://%s", target)
	}
	security := insecure.NewCredentials()
	if secure {
		config, err := tlsConfig(options)
		if err != nil {
			return "", nil, err
		}
		security = credentials.NewTLS(config)
	}
	config, err := configFor(target)
	if err != nil {
		return "", nil, err
	}
	calls := calls{timeout: options.Timeout}
	return target, []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithPerRPCCredentials(identityOf(options, secure)),
		grpc.WithDisableServiceConfig(), // Name servers are not asked for another one.
		grpc.WithDefaultServiceConfig(config),
		// A call must find a restarted server within its deadline. gRPC by default waits up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxReceiveBytes), grpc.MaxRetryRPCBufferSize(maxRetryBytes),
		),
		grpc.WithChainUnaryInterceptor(calls.unary),
		grpc.WithChainStreamInterceptor(calls.stream),
	}, nil
}

// Returns the service config. Only dns:///host:port spreads calls over several addresses.
func configFor(target string) (string, error) {
	if strings.HasPrefix(target, "dns:///") {
		return string(serviceConfig), nil
	}
	var config map[string]any
	if err := json.Unmarshal(serviceConfig, &config); err != nil {
		return "", err
	}
	delete(config, "loadBalancingConfig")
	delete(config, "healthCheckConfig")
	text, err := json.Marshal(config)
	return string(text), err
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

func tlsConfig(options Options) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if options.CAFile != "" {
		trusted, err := os.ReadFile(options.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(trusted) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", options.CAFile)
		}
	}
	if options.CertFile != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(options.CertFile, options.KeyFile)
			return &pair, err
		}
		if _, err := load(nil); err != nil {
			return nil, err
		}
		config.GetClientCertificate = load
	}
	return config, nil
}

// Sends with each call who calls.
type identity struct {
	sent   map[string]string
	secure bool
}

func identityOf(options Options, secure bool) identity {
	sent := map[string]string{}
	for key, value := range map[string]string{
		"x-runekeep-account": options.Account,
		"x-runekeep-user":    options.User,
	} {
		if value != "" {
			sent[key] = value
		}
	}
	if options.APIKey != "" {
		sent["authorization"] = "Bearer " + options.APIKey
	}
	return identity{sent, secure}
}

func (i identity) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return i.sent, nil
}

func (i identity) RequireTransportSecurity() bool { return i.secure }
