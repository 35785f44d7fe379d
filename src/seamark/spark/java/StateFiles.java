/*
 * Reads files through and copies them, in Spark's tasks: the state of native savepoints, and the
 * checksums of all. state/files.py sends them; Janino compiles this file, as StateRows.java.
 */
package seamark;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.WritableByteChannel;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.zip.CRC32;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.util.SerializableConfiguration;

public class StateFiles {
  /** Outside of Java's heap, where the kernel copies from and to without a copy in between. */
  static final int BUFFER_BYTES = 1 << 18;

  /**
   * Files below a directory in, as lines "path, tab, path of the copy" below another one, several to a
   * string or one; one string of lines "path, tab, bytes, tab, CRC-32" out. One that is not there
   * has -2 bytes, one that the file system itself finds damaged -1.
   */
  public static class Files implements FlatMapFunction {
    final String from;
    final String to;
    final boolean sums;
    final SerializableConfiguration hadoop;

    /** to: null to read only; sums: whether copies get the file system's own checksum files. */
    public Files(String from, String to, boolean sums, SerializableConfiguration hadoop) {
      this.from = from;
      this.to = to;
      this.sums = sums;
      this.hadoop = hadoop;
    }

    public Iterator call(Object input) throws Exception {
      StringBuilder found = new StringBuilder();
      ByteBuffer buffer = ByteBuffer.allocateDirect(BUFFER_BYTES);
      Iterator batches = (Iterator) input;
      while (batches.hasNext()) {
        String[] lines = ((String) batches.next()).split("\n");
        for (int i = 0; i < lines.length; i++) {
          String[] names = lines[i].split("\t");
          found.append(names[0]).append('\t')
              .append(this.read(names[0], names[1], buffer)).append('\n');
        }
      }
      Object row = RowFactory.create(new Object[] {found.toString()});
      return Collections.singletonList(row).iterator();
    }

    String read(String path, String copy, ByteBuffer buffer) throws Exception {
      Configuration conf = this.hadoop.value();
      Path at = new Path(this.from + "/" + path);
      CRC32 crc = new CRC32();
      long size = 0;
      WritableByteChannel target = null;
      try {
        ReadableByteChannel source = this.open(at, conf);
        try {
          if (this.to != null) target = this.create(new Path(this.to + "/" + copy), conf);
          buffer.clear();
          while (source.read(buffer) >= 0) {
            buffer.flip();
            size += buffer.remaining();
            crc.update((ByteBuffer) buffer.duplicate());
            while (target != null && buffer.hasRemaining()) target.write(buffer);
            buffer.clear();
          }
        } finally {
          source.close();
          if (target != null) target.close();
        }
      } catch (ChecksumException damaged) {
        size = -1;
      } catch (FileNotFoundException missing) {
        size = -2;
      }
      return size + "\t" + crc.getValue();
    }

    ReadableByteChannel open(Path path, Configuration conf) throws IOException {
      FileSystem files = path.getFileSystem(conf);
      if (!(files instanceof LocalFileSystem)) return Channels.newChannel(files.open(path));
      return new LocalFile(((LocalFileSystem) files).pathToFile(path));
    }

    WritableByteChannel create(Path path, Configuration conf) throws IOException {
      FileSystem files = path.getFileSystem(conf);
      if (this.sums || !(files instanceof LocalFileSystem)) {
        return Channels.newChannel((OutputStream) files.create(path, true));
      }
      File file = ((LocalFileSystem) files).pathToFile(path);
      file.getParentFile().mkdirs();
      return new FileOutputStream(file).getChannel();
    }
  }

  /** Lines that several threads share: each has an iterator, and each line goes to one of them. */
  public static class Lines implements Iterable {
    final ConcurrentLinkedQueue left;

    public Lines(String lines) {
      this.left = new ConcurrentLinkedQueue(Arrays.asList(lines.split("\n")));
    }

    public Iterator iterator() {
      return new Share(this.left);
    }
  }

  static class Share implements Iterator {
    final ConcurrentLinkedQueue left;
    Object next;

    Share(ConcurrentLinkedQueue left) {
      this.left = left;
    }

    public boolean hasNext() {
      if (this.next == null) this.next = this.left.poll();
      return this.next != null;
    }

    public Object next() {
      if (!this.hasNext()) throw new NoSuchElementException();
      Object found = this.next;
      this.next = null;
      return found;
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }
  }

  /**
   * A local file, compared with Hadoop's checksum file beside it if it has one, as Hadoop does, in
   * larger pieces: several times as fast.
   */
  static class LocalFile implements ReadableByteChannel {
    final File file;
    final FileChannel channel;
    final ByteBuffer sums;
    int chunk = 1;
    final CRC32 crc = new CRC32();

    LocalFile(File file) throws IOException {
      this.file = file;
      this.channel = new FileInputStream(file).getChannel();
      File beside = new File(file.getParentFile(), "." + file.getName() + ".crc");
      if (!beside.isFile()) {
        this.sums = null;
        return;
      }
      this.sums = ByteBuffer.wrap(java.nio.file.Files.readAllBytes(beside.toPath()));
      boolean whole = this.sums.remaining() >= 8 && this.sums.getInt() == 0x63726300;  // crc, 0
      if (whole) this.chunk = this.sums.getInt();
      if (!whole || this.chunk < 1 || this.chunk > BUFFER_BYTES
          || this.sums.remaining() != 4 * ((file.length() + this.chunk - 1) / this.chunk)) {
        this.channel.close();
        throw new ChecksumException(beside + " does not fit its file", 0);
      }
    }

    /** Fills as many whole chunks of the buffer, which is empty, as there are bytes for. */
    public int read(ByteBuffer buffer) throws IOException {
      buffer.limit(buffer.capacity() - buffer.capacity() % this.chunk);
      while (buffer.hasRemaining() && this.channel.read(buffer) >= 0);
      int size = buffer.position();
      ByteBuffer piece = (ByteBuffer) buffer.duplicate();
      for (int i = 0; this.sums != null && i < size; i += this.chunk) {
        piece.limit(Math.min(size, i + this.chunk));
        piece.position(i);
        this.crc.reset();
        this.crc.update(piece);
        if (!this.sums.hasRemaining() || (int) this.crc.getValue() != this.sums.getInt()) {
          throw new ChecksumException(this.file + " was altered", 0);
        }
      }
      return size == 0 ? -1 : size;
    }

    public boolean isOpen() {
      return this.channel.isOpen();
    }

    public void close() throws IOException {
      this.channel.close();
    }
  }
}
