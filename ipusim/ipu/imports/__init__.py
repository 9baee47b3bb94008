"""TensorFlow as programs import it: installed TensorFlow with Graphcore's modules in it, of version 1 or 2.

| module | content |
| --- | --- |
| ``rows`` | which object stands under which name |
| ``faces`` | modules with those names in front of the modules that are installed |
| ``version`` | for which version of TensorFlow a program is written |
| ``switches`` | TensorFlow's process in version 1 or 2, seeded, and back again |
| ``hosted`` | the imports of a program's own modules, from here to the end of a block |

TensorFlow's own imports, and those of other packages, stay as they are.
"""
