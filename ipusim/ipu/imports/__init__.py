"""TensorFlow as programs import it: installed TensorFlow with Graphcore's modules, as version 1 or 2.

| module | content |
| --- | --- |
| ``rows`` | table of names and objects |
| ``faces`` | modules that combine the table with installed modules |
| ``version`` | version of TensorFlow that a program is written for |
| ``switches`` | TensorFlow's process in version 1 or 2, seeded and restored |
| ``hosted`` | imports of a program's own modules inside a block |

Imports within TensorFlow and other packages stay unchanged.
"""
