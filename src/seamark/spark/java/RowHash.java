/*
 * The hash of a row as docs/FORMAT.md has it, for the types that a Kafka record is made of:
 * checkpoint/row_hash.py has all types, and computes whole columns.
 */
package seamark;

import java.nio.charset.StandardCharsets;

/** Hashes values, and adds them up to rows: a row's hash is `avalanche` of the sum of its parts. */
public class RowHash {
  static final long P2 = 0xC2B2AE3D27D4EB4FL;
  static final long P3 = 0x165667B19E3779F9L;
  static final long P4 = 0x85EBCA77C2B2AE63L;
  /** Of a null. */
  static final long P5 = 0x27D4EB2F165667C5L;
  static final int Q1 = 0x9E3779B1;
  static final int Q2 = 0x85EBCA77;
  static final int Q3 = 0xC2B2AE3D;

  static long avalanche(long x) {
    x = (x ^ (x >>> 33)) * P2;
    x = (x ^ (x >>> 29)) * P3;
    return x ^ (x >>> 32);
  }

  /** The odd factor of a column's, or of a struct's field's, values. */
  static long factor(String name) {
    return avalanche(ofBytes(name.getBytes(StandardCharsets.UTF_8))) | 1L;
  }

  /** The hash of a binary or text value; null is possible. */
  static long ofBytes(byte[] data) {
    if (data == null) return P5;
    int a = Q1 + Q2;
    int b = Q2;
    int c = 0;
    int d = -Q1;
    int at = 0;
    do {
      a = round(a, word(data, at));
      b = round(b, word(data, at + 4));
      c = round(c, word(data, at + 8));
      d = round(d, word(data, at + 12));
      at += 16;
    } while (at < data.length);
    int x = Integer.rotateLeft(a, 1) + Integer.rotateLeft(b, 7) + Integer.rotateLeft(c, 12)
        + Integer.rotateLeft(d, 18);
    x = (x ^ (x >>> 15)) * Q2;
    x = (x ^ (x >>> 13)) * Q3;
    x = x ^ (x >>> 16);
    return ((long) x & 0xFFFFFFFFL) + data.length * P3;
  }

  static int round(int state, int word) {
    return Integer.rotateLeft(state + word * Q2, 13) * Q1;
  }

  /** Four bytes, the lowest first; zeros stand behind the end. */
  static int word(byte[] data, int at) {
    if (at + 4 <= data.length) {
      return (data[at] & 255) | (data[at + 1] & 255) << 8 | (data[at + 2] & 255) << 16
          | (data[at + 3] & 255) << 24;
    }
    int word = 0;
    for (int i = data.length - 1; i >= at; i--) word = word << 8 | (data[i] & 255);
    return word;
  }

  /** The part of the element with this number, from 1, in the sum of a list. */
  static long element(long hash, int number) {
    return avalanche(hash + number * P2);
  }

  static long list(long sum, int count) {
    return avalanche(sum + count * P3 + P4);
  }

  static long struct(long sum) {
    return avalanche(P4 + sum);
  }
}
