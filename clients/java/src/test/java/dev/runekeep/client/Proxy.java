package dev.runekeep.client;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/** Stands before a server and breaks its connections. */
final class Proxy implements AutoCloseable {
  private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
  private final String host;
  private final int port;
  private final List<Socket> open = new ArrayList<>();
  private String marker;
  private int connections;

  Proxy(String server) throws IOException {
    int colon = server.lastIndexOf(':');
    host = server.substring(0, colon);
    port = Integer.parseInt(server.substring(colon + 1));
    run(this::accept);
  }

  String address() {
    return "127.0.0.1:" + listener.getLocalPort();
  }

  synchronized int connections() {
    return connections;
  }

  /** Passes the next request with the marker on, but not its answer: the connection breaks when the server answers. */
  synchronized void cutAfter(String text) {
    marker = text;
  }

  /** Breaks all connections. */
  synchronized void cut() {
    for (Socket socket : open) {
      closeQuietly(socket);
    }
    open.clear();
  }

  @Override
  public void close() throws IOException {
    listener.close();
    cut();
  }

  private void accept() throws IOException {
    while (true) {
      Socket near = listener.accept();
      Socket far = new Socket(host, port);
      synchronized (this) {
        connections++;
        open.add(near);
        open.add(far);
      }
      AtomicBoolean marked = new AtomicBoolean();
      run(() -> forward(near, far, marked, true));
      run(() -> forward(far, near, marked, false));
    }
  }

  private void forward(Socket from, Socket to, AtomicBoolean marked, boolean requests) throws IOException {
    try (to) {
      InputStream input = from.getInputStream();
      OutputStream output = to.getOutputStream();
      byte[] buffer = new byte[1 << 16];
      for (int size = input.read(buffer); size >= 0; size = input.read(buffer)) {
        if (requests && isMarked(new String(buffer, 0, size, StandardCharsets.ISO_8859_1))) {
          marked.set(true);
        }
        if (!requests && marked.get()) {
          return;
        }
        output.write(buffer, 0, size);
      }
    }
  }

  private synchronized boolean isMarked(String data) {
    boolean found = marker != null && data.contains(marker);
    if (found) {
      marker = null;
    }
    return found;
  }

  private interface Task {
    void run() throws IOException;
  }

  private static void run(Task task) {
    Thread thread =
        new Thread(
            () -> {
              try {
                task.run();
              } catch (IOException broken) {
                // The end of a connection, or of the proxy.
              }
            });
    thread.setDaemon(true);
    thread.start();
  }

  private static void closeQuietly(Socket socket) {
    try {
      socket.close();
    } catch (IOException broken) {
      // It is gone.
    }
  }
}
