/*
 * Reads files through and copies them, in Spark's tasks: the state of native savepoints, and the
 * checksums of all. native.py sends them; Janino compiles this file, as StateRows.java.
 */
package tidemark;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
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
  /**
   * Files below a directory in, as lines "path, tab, path of the copy" below another one; lines "path,
   * tab, bytes, tab, CRC-32" out. One that is not there has -2 bytes, one that the file
   * system itself finds damaged -1.
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
      ArrayList found = new ArrayList();
      byte[] buffer = new byte[1 << 20];
      Iterator batches = (Iterator) input;
      while (batches.hasNext()) {
        StringBuilder lines = new StringBuilder();
        String[] paths = ((String) batches.next()).split("\n");
        for (int i = 0; i < paths.length; i++) {
          String[] names = paths[i].split("\t");
          lines.append(names[0]).append('\t')
              .append(this.read(names[0], names[1], buffer)).append('\n');
        }
        found.add(RowFactory.create(new Object[] {lines.toString()}));
      }
      return found.iterator();
    }

    String read(String path, String copy, byte[] buffer) throws Exception {
      Configuration conf = this.hadoop.value();
      Path at = new Path(this.from + "/" + path);
      CRC32 crc = new CRC32();
      long size = 0;
      OutputStream target = null;
      try {
        InputStream stream = this.open(at, conf);
        try {
          if (this.to != null) target = this.create(new Path(this.to + "/" + copy), conf);
          for (int n = stream.read(buffer); n >= 0; n = stream.read(buffer)) {
            crc.update(buffer, 0, n);
            if (target != null) target.write(buffer, 0, n);
            size += n;
          }
        } finally {
          stream.close();
          if (target != null) target.close();
        }
      } catch (ChecksumException damaged) {
        size = -1;
      } catch (FileNotFoundException missing) {
        size = -2;
      }
      return size + "\t" + crc.getValue();
    }

    InputStream open(Path path, Configuration conf) throws IOException {
      FileSystem files = path.getFileSystem(conf);
      if (!(files instanceof LocalFileSystem)) return files.open(path);
      return new LocalFile(((LocalFileSystem) files).pathToFile(path));
    }

    OutputStream create(Path path, Configuration conf) throws IOException {
      FileSystem files = path.getFileSystem(conf);
      if (this.sums || !(files instanceof LocalFileSystem)) return files.create(path, true);
      File file = ((LocalFileSystem) files).pathToFile(path);
      file.getParentFile().mkdirs();
      return new FileOutputStream(file);
    }
  }

  /**
   * A local file, compared with Hadoop's checksum file beside it if it has one, as Hadoop does, in
   * larger pieces: several times as fast.
   */
  static class LocalFile extends InputStream {
    final File file;
    final FileInputStream stream;
    final ByteBuffer sums;
    int chunk = 1;
    final CRC32 crc = new CRC32();

    LocalFile(File file) throws IOException {
      this.file = file;
      this.stream = new FileInputStream(file);
      File beside = new File(file.getParentFile(), "." + file.getName() + ".crc");
      if (!beside.isFile()) {
        this.sums = null;
        return;
      }
      this.sums = ByteBuffer.wrap(java.nio.file.Files.readAllBytes(beside.toPath()));
      boolean whole = this.sums.remaining() >= 8 && this.sums.getInt() == 0x63726300;  // crc, 0
      if (whole) this.chunk = this.sums.getInt();
      if (!whole || this.chunk < 1 || this.chunk > (1 << 20)
          || this.sums.remaining() != 4 * ((file.length() + this.chunk - 1) / this.chunk)) {
        this.stream.close();
        throw new ChecksumException(beside + " does not fit its file", 0);
      }
    }

    /** Fills as many whole chunks of the buffer as there are bytes for. */
    public int read(byte[] buffer) throws IOException {
      int wanted = buffer.length - buffer.length % this.chunk;
      int size = 0;
      int n = 0;
      while (size < wanted && n >= 0) {
        size += n;
        if (size < wanted) n = this.stream.read(buffer, size, wanted - size);
      }
      for (int i = 0; this.sums != null && i < size; i += this.chunk) {
        this.crc.reset();
        this.crc.update(buffer, i, Math.min(this.chunk, size - i));
        if (!this.sums.hasRemaining() || (int) this.crc.getValue() != this.sums.getInt()) {
          throw new ChecksumException(this.file + " was altered", 0);
        }
      }
      return size == 0 ? -1 : size;
    }

    public int read() {
      throw new UnsupportedOperationException();
    }

    public void close() throws IOException {
      this.stream.close();
    }
  }
}
