package dev.runekeep.client;

import com.google.gson.Gson;
import com.google.gson.reflect.TypeToken;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Opens the connection: where the server is, over TLS or not, and which calls are repeated. */
final class Transport {
  private static final String HTTPS = "https://";
  private static final String DNS = "dns:///";
  private static final Pattern TARGET = Pattern.compile("(\\[[^\\]/@?# ]+]|[^\\[\\]:/@?# ]+):(\\d+)");
  private static final Pattern LOOPBACK = Pattern.compile("localhost|127(\\.\\d{1,3}){3}|\\[::1]");
  private static final int MAX_RECEIVE_BYTES = 64 << 20;

  /** A larger request is not repeated; gRPC by default repeats those below 1 MiB. */
  private static final long MAX_RETRY_BYTES = 16 << 20;

  private Transport() {}

  static ManagedChannel open(Runekeep.Builder options) throws IOException {
    boolean https = options.address.startsWith(HTTPS);
    boolean balanced = options.address.startsWith(DNS);
    String target = options.address.substring(https ? HTTPS.length() : balanced ? DNS.length() : 0);
    if (https) {
      target = target.replaceFirst("/$", "");
      target = target.matches("\\[.*]|[^:]*") ? target + ":443" : target;
    }
    Matcher parts = TARGET.matcher(target);
    if (!parts.matches()) {
      throw new IllegalArgumentException(
          options.address + " is no address: write host:port, https://host:port or dns:///host:port");
    }
    boolean secure = https || options.caFile != null;
    if (!options.apiKey.isEmpty() && !secure && !LOOPBACK.matcher(parts.group(1)).matches()) {
      throw new IllegalArgumentException(
          "The key would go to " + target + " in plain text: set caFile, or write https://" + target);
    }
    if ((options.certFile == null) != (options.keyFile == null)) {
      throw new IllegalArgumentException("A certificate and its key go together: give both");
    }
    if (options.certFile != null && !secure) {
      throw new IllegalArgumentException("A client certificate needs TLS: set caFile, or write https://" + target);
    }
    return Grpc.newChannelBuilder(
            balanced ? DNS + target : target, secure ? tls(options) : InsecureChannelCredentials.create())
        .disableServiceConfigLookUp()
        .defaultServiceConfig(serviceConfig(balanced))
        .maxInboundMessageSize(MAX_RECEIVE_BYTES)
        .perRpcBufferLimit(MAX_RETRY_BYTES)
        .retryBufferSize(4 * MAX_RETRY_BYTES)
        .build();
  }

  private static ChannelCredentials tls(Runekeep.Builder options) throws IOException {
    TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder();
    if (options.caFile != null) {
      tls.trustManager(options.caFile);
    }
    if (options.certFile != null) {
      tls.keyManager(options.certFile, options.keyFile);
    }
    return tls.build();
  }

  /** Returns deploy/service-config.json. Only dns:///host:port spreads calls over several addresses. */
  private static Map<String, Object> serviceConfig(boolean balanced) throws IOException {
    try (Reader text =
        new InputStreamReader(
            Transport.class.getResourceAsStream("service-config.json"), StandardCharsets.UTF_8)) {
      Map<String, Object> config = new Gson().fromJson(text, new TypeToken<Map<String, Object>>() {}.getType());
      if (!balanced) {
        config.remove("loadBalancingConfig");
        config.remove("healthCheckConfig");
      }
      return config;
    }
  }
}
